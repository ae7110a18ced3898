#include "infer/acceptance/typical.h"

#include <cmath>
#include <vector>

#include "infer/acceptance/row_verification.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

// The least probability of a token that stays.
struct Threshold {
  double epsilon, delta;

  template <class T>
  double of(const T* logits, int64_t vocabulary, double temperature, std::vector<T>& scaled) const {
    for (int64_t i = 0; i < vocabulary; ++i) {
      scaled[static_cast<size_t>(i)] = static_cast<T>(static_cast<double>(logits[i]) / temperature);
    }
    return std::min(epsilon, delta * std::exp(-row_entropy_sums(scaled.data(), vocabulary).entropy()));
  }
};

template <class T>
RowJudgement judge_typical(const RowVerification<T>& in, int64_t b, double* overlaps, const Threshold& threshold) {
  const Row& row = in.row(b);
  const Warping& warping = in.whole().warping;
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(vocabulary));  // of position j
  std::vector<T> scaled(p.size());
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    row_warp(logits, vocabulary, warping, p.data());
    const bool drafted = j < in.drafted(b);
    if (drafted && overlaps != nullptr) overlaps[j] = row_overlap(p.data(), in.drafter(b, j), vocabulary);
    const double chance = drafted ? static_cast<double>(p[static_cast<size_t>(in.token(b, j))]) : 0;
    if (drafted && chance > threshold.of(logits, vocabulary, warping.temperature, scaled)) continue;
    return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
  }
}

}  // namespace

Judgement TypicalAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto heads = verification.logits.narrow(1, 0, window);                                   // [B,G,V]
  const auto p = warp(heads, verification.warping);                                              // [B,G,V]
  const auto chance = p.gather(2, verification.tokens.unsqueeze(2)).squeeze(2).to(at::kDouble);  // [B,G]
  const auto logs = heads.to(at::kDouble).div(verification.warping.temperature).log_softmax(2);
  const auto entropy = at::special_entr(logs.exp()).sum(2);  // [B,G]
  const auto kept = chance.gt(entropy.neg().exp().mul(delta_).clamp_max(epsilon_));
  Judgement judgement;
  judgement.accepted = leading(kept & drafted_positions(verification));
  judgement.next = target_token(verification, judgement.accepted);
  if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(p, at::stack(verification.probabilities, 1));
  }
  return judgement;
}

Judgement TypicalAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return exact_.judge(verification);
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  const Threshold threshold{epsilon_, delta_};
  return judge_rows(verification, overlaps, [&](const auto& rows, int64_t b, double* values) {
    return judge_typical(rows, b, values, threshold);
  });
}

}  // namespace draftsmith::infer
