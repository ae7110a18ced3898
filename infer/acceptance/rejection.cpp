#include "infer/acceptance/rejection.h"

#include <cmath>
#include <vector>

#include "infer/acceptance/rejection_operator.h"
#include "infer/acceptance/row_verification.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

template <class T>
RowJudgement judge_by_rejection(const RowVerification<T>& in, int64_t b, double* overlaps, double lenience) {
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
    // r < p/(l q) without dividing; strict, so that p = 0 is never accepted.
    const double counted = lenience * static_cast<double>(q[token]);
    if (chance * counted < static_cast<double>(p[static_cast<size_t>(token)])) continue;
    if (row_residual(p.data(), q, vocabulary, 1 / lenience) <= 0) warp_position(j);
    break;
  }
  return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
}

// Keeps tokens whose logit is at most `slack` below the largest.
template <class T>
RowJudgement judge_leniently(const RowVerification<T>& in, int64_t b, double* overlaps, double slack) {
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    const int64_t own = row_argmax(logits, in.vocabulary());
    if (j == in.drafted(b) || own == kNoToken) return {j, own};
    const int64_t token = in.token(b, j);
    if (overlaps != nullptr) overlaps[j] = own == token ? 1 : 0;
    if (static_cast<double>(logits[token]) < static_cast<double>(logits[own]) - slack) return {j, own};
  }
}

}  // namespace

Judgement RejectionAcceptance::judge_greedy_tensors(const Verification& verification) const {
  const auto heads = verification.logits.narrow(1, 0, verification.tokens.size(1));  // [B,G,V]
  const auto own = most_likely(heads);                                               // [B,G]
  const auto logit = [&](const at::Tensor& ids) {
    return heads.gather(2, ids.clamp_min(0).unsqueeze(2)).squeeze(2).to(at::kDouble);
  };
  const auto near = logit(verification.tokens).ge(logit(own).add(std::log(lenience_))) & own.ne(kNoToken);
  Judgement judgement;
  judgement.accepted = leading(near & drafted_positions(verification));
  judgement.next = target_token(verification, judgement.accepted);
  judgement.overlap = own.eq(verification.tokens).to(at::kDouble);
  return judgement;
}

Judgement RejectionAcceptance::judge_greedy(const Verification& verification) {
  if (lenience_ == 1) return exact_.judge(verification);
  if (!judged_by_rows(verification)) return judge_greedy_tensors(verification);
  const double slack = -std::log(lenience_);
  return judge_rows(verification, verification.tokens.size(1) > 0, [=](const auto& rows, int64_t b, double* values) {
    return judge_leniently(rows, b, values, slack);
  });
}

Judgement RejectionAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto p = warp(verification.logits, verification.warping);                            // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : p.narrow(1, 0, 0);  // [B,G,V]
  const auto counted = lenience_ == 1 ? q : q.mul(lenience_);
  const Decided decided = decide_by_rejection({p, counted, verification.tokens, verification.counts,
                                               uniforms_of(verification, Draw::kAccept, window),
                                               uniforms_of(verification, Draw::kNext, window + 1)});
  Judgement judgement{.accepted = decided.accepted, .next = decided.next, .rolled_back = {}, .overlap = {}};
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, q);
  return judgement;
}

Judgement RejectionAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return judge_greedy(verification);
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  return judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_by_rejection(rows, b, values, lenience_);
  });
}

}  // namespace draftsmith::infer
