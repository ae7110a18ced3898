#include "infer/sampling/tensor_sampling.h"

#include <limits>

namespace draftsmith::infer {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

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

}  // namespace

at::Tensor tensor_warp(const at::Tensor& logits, const Warping& warping) {
  at::Tensor scores = warping.temperature == 1 ? logits : logits / warping.temperature;
  if (warping.top_k > 0 && warping.top_k < scores.size(-1)) scores = keep_top_k(scores, warping.top_k);
  if (warping.top_p < 1) scores = keep_top_p(scores, warping.top_p);
  return scores.softmax(-1);
}

at::Tensor tensor_draw(const at::Tensor& weights, const at::Tensor& uniforms) {
  const auto cumulative = weights.cumsum(-1, at::kDouble);                                         // [B,V]
  const auto threshold = cumulative.narrow(-1, weights.size(-1) - 1, 1) * uniforms.unsqueeze(-1);  // [B,1]
  return at::searchsorted(cumulative, threshold, /*out_int32=*/false, /*right=*/true)
      .squeeze(-1)
      .clamp_max(weights.size(-1) - 1);
}

}  // namespace draftsmith::infer
