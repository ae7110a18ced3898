#include "model/layers/relative_bias.h"

#include <cmath>

namespace draftsmith::model {
namespace {

// Buckets of the distances 0..max_distance with `buckets` buckets in one direction. The logarithm is taken by ATen in
// fp32, as the reference does: bucket borders fall on exact integers, where another rounding gives another bucket.
at::Tensor distance_buckets(int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 2;
  const at::Tensor distance = at::arange(0, std::max<int64_t>(max_distance, exact) + 64, at::kLong);
  const double span = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  at::Tensor large = at::log(distance.to(at::kFloat) / exact) / span * (buckets - exact);
  large = (large.clamp_min(0).to(at::kLong) + exact).clamp_max(buckets - 1);
  return at::where(distance < exact, distance, large);
}

}  // namespace

RelativeBias::RelativeBias(at::Tensor weight, bool bidirectional, int64_t max_distance) : weight_(std::move(weight)) {
  const int64_t buckets = bidirectional ? weight_.size(0) / 2 : weight_.size(0);
  const at::Tensor before = distance_buckets(buckets, max_distance);
  const at::Tensor after = bidirectional ? before + buckets : at::zeros_like(before);
  furthest_ = before.size(0) - 1;
  host_buckets_ =
      at::cat({before.narrow(0, 0, 1), after.narrow(0, 1, furthest_), before.narrow(0, 1, furthest_).flip(0)});
  buckets_ = host_buckets_.to(weight_.device());
  positions_ = at::arange(furthest_ + 1, buckets_.options());
}

at::Tensor RelativeBias::full(int64_t queries, int64_t keys) const {
  const int64_t longest = std::max(queries, keys);
  const at::Tensor positions = longest <= furthest_ ? positions_ : at::arange(longest, positions_.options());
  at::Tensor distance = positions.narrow(0, 0, keys) - positions.narrow(0, 0, queries).unsqueeze(1);  // [T,S]
  if (longest > furthest_) distance.clamp_(-furthest_, furthest_);
  return at::embedding(weight_, buckets_.take(distance)).permute({2, 0, 1}).unsqueeze(0);
}

at::Tensor RelativeBias::of_distances(int64_t first, int64_t count) const {
  const at::Tensor distance = at::arange(first, first + count, at::kLong).clamp_(-furthest_, furthest_);
  return weight_.detach().index_select(0, host_buckets_.take(distance).to(weight_.device())).t().contiguous();
}

}  // namespace draftsmith::model
