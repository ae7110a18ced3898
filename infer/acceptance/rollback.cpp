#include "infer/acceptance/rollback.h"

#include <cmath>
#include <vector>

#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

const NamedValues<RollbackRule>& rollback_rules() {
  static const NamedValues<RollbackRule> kRules("rollback rule", {{"effective", RollbackRule::kEffective},
                                                                  {"literal", RollbackRule::kLiteral},
                                                                  {"released_code", RollbackRule::kReleasedCode}});
  return kRules;
}

AcceptanceTraits RollbackAcceptance::traits() const {
  const bool released = rule_ == RollbackRule::kReleasedCode;
  return {.name = "rollback",
          .lossless = false,
          .first_from_target = released,
          .verifies_end = verify_end_,
          .runs_again = released};
}

// Finds the target's own choice at each position once: it also replaces a token that is rolled back.
template <class T>
RowJudgement RollbackAcceptance::judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const {
  const Warping& warping = in.whole().warping;
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(warping.greedy() ? 0 : vocabulary));  // of one position, warped
  const auto distant = [&](const T* logits, int64_t token) {
    const SoftmaxSums sums = row_softmax_sums(logits, vocabulary);
    return !(sums.highest - static_cast<double>(logits[token]) + std::log(sums.total) <= threshold_);  // or NaN
  };
  bool keeps_all = false;
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
    if (drafted && !broken && (keeps_all || (is_own && rule_ == RollbackRule::kEffective) || !distant(logits, token)))
      continue;
    keeps_all = is_own && rule_ == RollbackRule::kReleasedCode;
    if (keeps_all) continue;
    if (warping.greedy()) return {j, own};
    row_warp(logits, vocabulary, warping, p.data());
    return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
  }
}

Judgement RollbackAcceptance::judge(const Verification& verification) {
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps =
      verification.tokens.size(1) > 0 && (verification.warping.greedy() || verification.measure_overlap);
  Judgement judgement = judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_row(rows, b, values);
  });
  judgement.rolled_back = host_empty({judgement.accepted.size(0)}, at::kBool);
  const auto* accepted = judgement.accepted.const_data_ptr<int64_t>();
  const auto* counts = verification.counts.const_data_ptr<int64_t>();
  auto* rolled_back = judgement.rolled_back.mutable_data_ptr<bool>();
  for (int64_t b = 0; b < judgement.accepted.size(0); ++b) rolled_back[b] = accepted[b] < counts[b];
  return judgement;
}

Judgement RollbackAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto drafted = drafted_positions(verification);         // [B,G]
  const auto heads = verification.logits.narrow(1, 0, window);  // [B,G,V]
  // Not "greater": NaN is distant too, so that its position is the one judged. [B,G]
  auto distant = token_log_probability(heads, verification.tokens).neg().le(threshold_).logical_not();
  at::Tensor own;     // [B,G] greedy decoding only
  at::Tensor broken;  // [B] likewise: some logits are not finite
  at::Tensor failed;  // [B] the whole draft is judged, and some of these logits are not finite
  Judgement judgement;
  if (verification.warping.greedy()) {
    const auto choices = most_likely(heads);
    own = choices.eq(verification.tokens);
    broken = (drafted & choices.eq(kNoToken)).any(1);
    judgement.overlap = own.to(at::kDouble);
    if (rule_ == RollbackRule::kEffective) distant = distant & own.logical_not();
  } else if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(warp(heads, verification.warping), at::stack(verification.probabilities, 1));
  }
  judgement.accepted = leading(drafted & distant.logical_not());
  if (rule_ == RollbackRule::kReleasedCode && own.defined() && window > 0) {
    const auto first = judgement.accepted.clamp_max(window - 1).unsqueeze(1);  // [B,1]
    const auto keeps_all =
        judgement.accepted.lt(verification.counts) & own.gather(1, first).squeeze(1) & broken.logical_not();  // [B]
    failed = judgement.accepted.lt(verification.counts) & own.gather(1, first).squeeze(1) & broken;
    judgement.accepted = at::where(keeps_all, verification.counts, judgement.accepted);
  }
  judgement.rolled_back = judgement.accepted.lt(verification.counts);
  judgement.next = target_token(verification, judgement.accepted);
  if (failed.defined()) judgement.next.masked_fill_(failed, kNoToken);
  return judgement;
}

}  // namespace draftsmith::infer
