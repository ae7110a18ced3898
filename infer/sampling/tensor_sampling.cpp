#include "infer/sampling/tensor_sampling.h"

#include <limits>

namespace draftsmith::infer {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMinusInfinity = -kInfinity;

// Keeps exactly k tokens: all above the k-th value, and the lowest ids among those equal to it.
at::Tensor keep_top_k(const at::Tensor& logits, int64_t k) {
  const auto kth = std::get<0>(logits.topk(k, -1)).narrow(-1, k - 1, 1);  // [...,1]
  const auto above = logits.gt(kth);                                      // [...,V]
  const auto equal = logits.eq(kth);
  const auto room = k - above.sum(-1, true);
  return logits.masked_fill((above | (equal & equal.cumsum(-1).le(room))).logical_not(), kMinusInfinity);
}

// Keeps the smallest prefix of the order by probability (then id) whose mass reaches p, and at least one token.
at::Tensor keep_top_p(const at::Tensor& logits, double p) {
  auto [sorted, order] = at::sort(logits, /*stable=*/true, -1, /*descending=*/true);
  const auto mass = sorted.softmax(-1);                           // [...,V]
  const auto before = mass.to(at::kDouble).cumsum(-1).sub(mass);  // mass of the tokens ahead
  auto drop = before.ge(p);
  drop.select(-1, 0).fill_(false);
  return logits.masked_fill(at::zeros_like(drop).scatter(-1, order, drop), kMinusInfinity);
}

// Keeps tokens whose probability is at least `p` times the largest.
at::Tensor keep_min_p(const at::Tensor& logits, double p) {
  const auto weights = logits.sub(logits.amax(-1, true)).exp();  // [...,V], 1 for the most likely
  return logits.masked_fill(weights.lt(p), kMinusInfinity);
}

}  // namespace

// A maximum is NaN where one of its numbers is.
at::Tensor tensor_most_likely(const at::Tensor& logits) {
  const auto tokens = logits.argmax(-1);                                     // [...]
  const auto highest = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1);  // [...]
  return tokens.masked_fill(highest.lt(kInfinity).logical_not(), kNoToken);
}

at::Tensor tensor_warp(const at::Tensor& logits, const Warping& warping) {
  at::Tensor scores = warping.temperature == 1 ? logits : logits / warping.temperature;
  if (warping.top_k > 0 && warping.top_k < scores.size(-1)) scores = keep_top_k(scores, warping.top_k);
  if (warping.top_p < 1) scores = keep_top_p(scores, warping.top_p);
  if (warping.min_p > 0) scores = keep_min_p(scores, warping.min_p);
  const auto broken = logits.amax(-1, true).lt(kInfinity).logical_not();  // [...,1]; truncation could drop a NaN
  return scores.softmax(-1).masked_fill_(broken, std::numeric_limits<double>::quiet_NaN());
}

at::Tensor tensor_draw(const at::Tensor& weights, const at::Tensor& uniforms) {
  const auto cumulative = weights.cumsum(-1, at::kDouble);         // [B,V]
  const auto total = cumulative.select(-1, weights.size(-1) - 1);  // [B]
  return at::searchsorted(cumulative, (total * uniforms).unsqueeze(-1), /*out_int32=*/false, /*right=*/true)
      .squeeze(-1)
      .clamp_max(weights.size(-1) - 1)
      .masked_fill(total.isfinite().logical_not(), kNoToken);
}

}  // namespace draftsmith::infer
