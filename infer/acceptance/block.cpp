#include "infer/acceptance/block.h"

#include <algorithm>
#include <vector>

#include "infer/acceptance/row_verification.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

// The longest prefix of a draft that is kept so far, and the probability p_i with which it may stay.
struct Prefix {
  int64_t length = 0;
  double chance = 1;
};

// Judges one row on the CPU.
template <class T>
class RowBlock {
 public:
  RowBlock(const RowVerification<T>& in, int64_t b)
      : in_(in), b_(b), row_(in.row(b)), p_(static_cast<size_t>(in.vocabulary())) {}

  // Visits positions in order. Nothing is kept from a position on whose p_i is 0 or no number.
  RowJudgement judge(double* overlaps) {
    const int64_t drafted = in_.drafted(b_);
    double chance = 1;  // p_i
    for (int64_t i = 0; i < drafted && chance > 0; ++i) {
      warp(i);
      const T* q = in_.drafter(b_, i);
      if (overlaps != nullptr) overlaps[i] = row_overlap(p_.data(), q, in_.vocabulary());
      if (i > 0) consider({i, chance}, chance_of_all_after(chance, q));
      const auto token = static_cast<size_t>(in_.token(b_, i));
      const double grown = chance * static_cast<double>(p_[token]) / static_cast<double>(q[token]);
      chance = grown >= 0 ? std::min(1.0, grown) : 0;  // 0 for NaN
    }
    if (drafted > 0 && chance > 0) consider({drafted, chance}, chance);
    return {kept_.length, next_token()};
  }

 private:
  void warp(int64_t i) { row_warp(in_.logits(b_, i), in_.vocabulary(), in_.whole().warping, p_.data()); }

  // Returns h_i of a prefix that further tokens follow.
  double chance_of_all_after(double chance, const T* q) const {
    if (chance >= 1) return 1;
    const double excess = row_excess(p_.data(), q, in_.vocabulary(), chance);
    return excess / (excess + 1 - chance);
  }

  void consider(const Prefix& prefix, double chance) {
    if (row_.random.uniform(Draw::kAccept, row_.emitted() + prefix.length - 1) < chance) kept_ = prefix;
  }

  int64_t next_token() {
    warp(kept_.length);
    const int64_t vocabulary = in_.vocabulary();
    if (kept_.length < in_.drafted(b_) &&
        row_residual(p_.data(), in_.drafter(b_, kept_.length), vocabulary, kept_.chance) <= 0) {
      warp(kept_.length);
    }
    return row_draw(p_.data(), vocabulary, row_.random.uniform(Draw::kNext, row_.emitted() + kept_.length));
  }

  const RowVerification<T>& in_;
  int64_t b_;
  const Row& row_;
  std::vector<T> p_;  // [V] of one position
  Prefix kept_;
};

// Judges all rows in tensors, position by position.
class TensorBlock {
 public:
  TensorBlock(const at::Tensor& p, const at::Tensor& q, const Verification& verification)
      : p_(p), q_(q), counts_(verification.counts), kept_(at::zeros_like(counts_)) {
    const int64_t window = verification.tokens.size(1);
    kept_chance_ = at::ones({counts_.size(0)}, p.options().dtype(at::kDouble));
    const auto index = verification.tokens.unsqueeze(2);                           // [B,G,1]
    const auto p_token = p.narrow(1, 0, window).gather(2, index).to(at::kDouble);  // [B,G,1]
    ratio_ = p_token.div(q.gather(2, index)).squeeze(2);                           // [B,G]
    uniforms_ = uniforms_of(verification, Draw::kAccept, window);                  // [B,G]
  }

  // Returns the number of kept tokens, [B].
  at::Tensor judge() {
    auto chance = at::ones_like(kept_chance_);  // p_i, [B]
    const int64_t window = q_.size(1);
    for (int64_t i = 0; i <= window; ++i) {
      if (i > 0) consider(i, chance);
      if (i < window) chance = at::where(counts_.gt(i), chance.mul(ratio_.select(1, i)).clamp_max(1), chance);
    }
    return kept_;
  }

  // Returns the weights of the target's token, [B,V].
  at::Tensor next_weights() const {
    const auto target = at_position(p_, kept_);
    if (q_.size(1) == 0) return target;
    const auto drafter = at_position(q_, kept_.clamp_max(q_.size(1) - 1));
    const auto rest = excess(target, drafter, kept_chance_);
    return at::where(kept_.lt(counts_).unsqueeze(1) & rest.sum(1, true).gt(0), rest, target);
  }

 private:
  static at::Tensor excess(const at::Tensor& p, const at::Tensor& q, const at::Tensor& chance) {
    return p.mul(chance.to(p.scalar_type()).unsqueeze(1)).sub_(q).clamp_min_(0);
  }

  // Keeps the first i tokens of the rows that drafted so many and whose number is below h_i.
  void consider(int64_t i, const at::Tensor& chance) {
    auto limit = chance;
    if (i < q_.size(1)) {
      const auto rest = excess(p_.select(1, i), q_.select(1, i), chance).sum(1, false, at::kDouble);
      const auto followed = at::where(chance.ge(1), at::ones_like(chance), rest.div(rest.add(1).sub(chance)));
      limit = at::where(counts_.gt(i), followed, chance);
    }
    const auto keeps = uniforms_.select(1, i - 1).lt(limit) & counts_.ge(i);
    kept_ = kept_.masked_fill(keeps, i);
    kept_chance_ = at::where(keeps, chance, kept_chance_);
  }

  at::Tensor p_, q_;        // [B,G+1,V], [B,G,V]
  at::Tensor counts_;       // [B]
  at::Tensor kept_;         // [B]
  at::Tensor kept_chance_;  // [B] p_i of the kept prefix
  at::Tensor ratio_;        // [B,G] p/q of the drafted tokens
  at::Tensor uniforms_;     // [B,G]
};

}  // namespace

Judgement BlockAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto p = warp(verification.logits, verification.warping);                            // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : p.narrow(1, 0, 0);  // [B,G,V]
  TensorBlock block(p, q, verification);
  Judgement judgement;
  judgement.accepted = block.judge();
  const auto numbers = uniforms_of(verification, Draw::kNext, window + 1);  // [B,G+1]
  judgement.next = draw(block.next_weights(), numbers.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1));
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, q);
  return judgement;
}

Judgement BlockAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return exact_.judge(verification);
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  return judge_rows(verification, overlaps,
                    [](const auto& rows, int64_t b, double* values) { return RowBlock(rows, b).judge(values); });
}

}  // namespace draftsmith::infer
