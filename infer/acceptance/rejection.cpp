#include "infer/acceptance/rejection.h"

#include <vector>

#include "infer/acceptance/row_verification.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

// Returns weights [B,V]: max(0, p - q) after a rejection, p after a full acceptance or if p - q has no mass.
at::Tensor residual(const Verification& verification, const at::Tensor& p, const at::Tensor& q,
                    const at::Tensor& accepted) {
  const auto target = at_position(p, accepted);  // [B,V]
  const int64_t window = verification.tokens.size(1);
  if (window == 0) return target;
  const auto rejected = accepted.lt(verification.counts).unsqueeze(1);  // [B,1]
  const auto drafter = at_position(q, accepted.clamp_max(window - 1));  // [B,V]
  const auto rest = target.sub(drafter).clamp_min_(0);
  return at::where(rejected & rest.sum(1, true).gt(0), rest, target);
}

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
  const auto p = warp(verification.logits, verification.warping);                       // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : at::Tensor();  // [B,G,V]
  Judgement judgement;
  if (window == 0) {
    judgement.accepted = at::zeros_like(verification.counts);
  } else {
    const auto index = verification.tokens.unsqueeze(2);                      // [B,G,1]
    const auto p_token = p.narrow(1, 0, window).gather(2, index).squeeze(2);  // [B,G]
    const auto q_token = q.gather(2, index).squeeze(2);                       // [B,G]
    const auto r = uniforms_of(verification, Draw::kAccept, window);          // [B,G]
    // r < p/q without dividing; strict, so that p = 0 is never accepted.
    judgement.accepted = leading(r.mul(q_token).lt(p_token) & drafted_positions(verification));
  }
  const auto r_next = uniforms_of(verification, Draw::kNext, window + 1);  // [B,G+1]
  judgement.next = draw(residual(verification, p, q, judgement.accepted),
                        r_next.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1));
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
