#include "infer/acceptance/lossy.h"

#include <cmath>
#include <vector>

#include "infer/acceptance/row_judging.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

const NamedValues<RollbackRule>& rollback_rules() {
  static const NamedValues<RollbackRule> kRules(
      "rollback rule", {{"effective", RollbackRule::kEffective}, {"literal", RollbackRule::kLiteral}});
  return kRules;
}

namespace {

// Finds the target's own choice at each position once: it also replaces a token that is rolled back.
template <class T>
RowJudgement judge_rollback(const RowVerification<T>& in, int64_t b, double* overlaps, double threshold,
                            RollbackRule rule) {
  const Warping& warping = in.whole().warping;
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(warping.greedy() ? 0 : vocabulary));  // of one position, warped
  const auto distant = [&](const T* logits, int64_t token) {
    const SoftmaxSums sums = row_softmax_sums(logits, vocabulary);
    return !(sums.highest - static_cast<double>(logits[token]) + std::log(sums.total) <= threshold);  // or NaN
  };
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    const bool drafted = j < in.drafted(b);
    const int64_t token = drafted ? in.token(b, j) : kNoToken;
    const int64_t own = warping.greedy() ? row_argmax(logits, vocabulary) : kNoToken;
    const bool is_own = drafted && warping.greedy() && own == token;
    const bool broken = warping.greedy() && own == kNoToken;  // logits that fail the row, wherever they stand
    if (drafted && overlaps != nullptr) {
      overlaps[j] = is_own ? 1 : 0;
      if (!warping.greedy()) {
        row_warp(logits, vocabulary, warping, p.data());
        overlaps[j] = row_overlap(p.data(), in.drafter(b, j), vocabulary);
      }
    }
    if (drafted && !broken && ((is_own && rule == RollbackRule::kEffective) || !distant(logits, token))) continue;
    if (warping.greedy()) return {j, own};
    row_warp(logits, vocabulary, warping, p.data());
    return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
  }
}

}  // namespace

Judgement RollbackAcceptance::judge(const Verification& verification) {
  if (!has_row_kernels(verification.logits)) return judge_tensors(verification);
  const bool overlaps =
      verification.tokens.size(1) > 0 && (verification.warping.greedy() || verification.measure_overlap);
  return judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_rollback(rows, b, values, threshold_, rule_);
  });
}

Judgement RollbackAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto heads = verification.logits.narrow(1, 0, window);  // [B,G,V]
  // Not "greater": NaN is distant too, so that its position is the one judged. [B,G]
  auto distant = token_log_probability(heads, verification.tokens).neg().le(threshold_).logical_not();
  Judgement judgement;
  if (verification.warping.greedy()) {
    const auto own = most_likely(heads).eq(verification.tokens);  // [B,G]
    judgement.overlap = own.to(at::kDouble);
    if (rule_ == RollbackRule::kEffective) distant = distant & own.logical_not();
  } else if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(warp(heads, verification.warping), at::stack(verification.probabilities, 1));
  }
  judgement.accepted = leading(drafted_positions(verification) & distant.logical_not());
  judgement.next = target_token(verification, judgement.accepted);
  return judgement;
}

}  // namespace draftsmith::infer
