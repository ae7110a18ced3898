#include "infer/acceptance/rollback.h"

#include <cmath>
#include <vector>

#include "infer/row_kernels.h"

namespace draftsmith::infer {

AcceptanceTraits RollbackAcceptance::traits() const {
  return {.name = "rollback", .lossless = false, .first_from_target = rule_ == RollbackRule::kReleasedCode};
}

template <class T>
RowJudgement RollbackAcceptance::judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const {
  const Warping& warping = in.whole().warping;
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(warping.greedy() ? 0 : vocabulary));
  RowJudgement row;
  for (; row.accepted < in.drafted(b); ++row.accepted) {
    const T* logits = in.logits(b, row.accepted);
    const int64_t token = in.token(b, row.accepted);
    const bool own = warping.greedy() && row_argmax(logits, vocabulary) == token;
    if (overlaps != nullptr) {
      if (!warping.greedy()) row_warp(logits, vocabulary, warping, p.data());
      overlaps[row.accepted] =
          warping.greedy() ? (own ? 1 : 0) : row_overlap(p.data(), in.drafter(b, row.accepted), vocabulary);
    }
    if (own && rule_ == RollbackRule::kEffective) continue;
    const SoftmaxSums sums = row_softmax_sums(logits, vocabulary);
    if (sums.highest - static_cast<double>(logits[token]) + std::log(sums.total) > threshold_) break;
  }
  const T* logits = in.logits(b, row.accepted);
  if (rule_ == RollbackRule::kReleasedCode && row.accepted < in.drafted(b)) {
    row.next = -1;
  } else if (warping.greedy()) {
    row.next = row_argmax(logits, vocabulary);
  } else {
    row_warp(logits, vocabulary, warping, p.data());
    row.next =
        row_draw(p.data(), vocabulary, in.row(b).random.uniform(Draw::kNext, in.row(b).emitted() + row.accepted));
  }
  return row;
}

Judgement RollbackAcceptance::judge(const Verification& verification) {
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps =
      verification.tokens.size(1) > 0 && (verification.warping.greedy() || verification.measure_overlap);
  Judgement judgement = judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_row(rows, b, values);
  });
  judgement.rolled_back = judgement.accepted.lt(verification.counts);
  return judgement;
}

Judgement RollbackAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const bool greedy = verification.warping.greedy();
  const auto drafted = drafted_positions(verification);                                   // [B,G]
  const auto heads = verification.logits.narrow(1, 0, window);                            // [B,G,V]
  auto distant = token_log_probability(heads, verification.tokens).neg().gt(threshold_);  // [B,G]
  Judgement judgement;
  if (greedy) {
    const auto own = most_likely(heads).eq(verification.tokens);
    judgement.overlap = own.to(at::kDouble);
    if (rule_ == RollbackRule::kEffective) distant = distant & own.logical_not();
  } else if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(warp(heads, verification.warping), at::stack(verification.probabilities, 1));
  }
  judgement.accepted = leading(drafted & distant.logical_not());
  judgement.rolled_back = judgement.accepted.lt(verification.counts);
  judgement.next = target_token(verification, judgement.accepted);
  if (rule_ == RollbackRule::kReleasedCode) judgement.next.masked_fill_(judgement.rolled_back, -1);
  return judgement;
}

}  // namespace draftsmith::infer
