#include "infer/acceptance/rejection.h"

#include <vector>

#include "infer/acceptance/rejection_operator.h"
#include "infer/acceptance/row_verification.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

template <class T>
RowJudgement judge_by_rejection(const RowVerification<T>& in, int64_t b, double* overlaps) {
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(vocabulary));  // of position j
  const auto warp_position = [&](int64_t j) { row_warp(in.logits(b, j), vocabulary, in.whole().warping, p.data()); };
  int64_t j = 0;
  warp_position(0);
  for (; j < in.drafted(b); warp_position(++j)) {
    const T* q = in.drafter(b, j);
    if (overlaps != nullptr) overlaps[j] = row_overlap(p.data(), q, vocabulary);
    const int64_t token = in.token(b, j);
    const double chance = row.random.uniform(Draw::kAccept, row.emitted() + j);
    // r < p/q without dividing; strict, so that p = 0 is never accepted.
    if (chance * static_cast<double>(q[token]) < static_cast<double>(p[static_cast<size_t>(token)])) continue;
    if (row_residual(p.data(), q, vocabulary) <= 0) warp_position(j);
    break;
  }
  return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
}

}  // namespace

Judgement RejectionAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto p = warp(verification.logits, verification.warping);                            // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : p.narrow(1, 0, 0);  // [B,G,V]
  const Decided decided = decide_by_rejection({p, q, verification.tokens, verification.counts,
                                               uniforms_of(verification, Draw::kAccept, window),
                                               uniforms_of(verification, Draw::kNext, window + 1)});
  Judgement judgement{.accepted = decided.accepted, .next = decided.next, .rolled_back = {}, .overlap = {}};
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, q);
  return judgement;
}

Judgement RejectionAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return exact_.judge(verification);
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  return judge_rows(verification, overlaps,
                    [](const auto& rows, int64_t b, double* values) { return judge_by_rejection(rows, b, values); });
}

}  // namespace draftsmith::infer
