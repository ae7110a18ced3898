#include "model/layers/relative_bias.h"

#include <algorithm>
#include <cmath>

namespace draftsmith::model {
namespace {

// Buckets of the distances 0..max_distance with `buckets` buckets in one direction. The logarithm is taken by ATen in
// fp32, as the reference does: bucket borders fall on exact integers, where another rounding gives another bucket.
std::vector<int64_t> distance_buckets(int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 2;
  const at::Tensor distance = at::arange(0, std::max<int64_t>(max_distance, exact) + 64, at::kLong);
  const double span = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  at::Tensor large = at::log(distance.to(at::kFloat) / exact) / span * (buckets - exact);
  large = (large.clamp_min(0).to(at::kLong) + exact).clamp_max(buckets - 1);
  const at::Tensor chosen = at::where(distance < exact, distance, large).contiguous();
  const int64_t* data = chosen.const_data_ptr<int64_t>();
  return {data, data + chosen.numel()};
}

}  // namespace

RelativeBias::RelativeBias(at::Tensor weight, bool bidirectional, int64_t max_distance)
    : weight_(std::move(weight)), bidirectional_(bidirectional) {
  const int64_t buckets = bidirectional ? weight_.size(0) / 2 : weight_.size(0);
  before_ = distance_buckets(buckets, max_distance);
  if (bidirectional_) {
    after_ = before_;
    for (int64_t& value : after_) {
      value += buckets;
    }
  }
  if (weight_.is_cpu() || weight_.is_meta()) return;
  const auto furthest = static_cast<int64_t>(before_.size()) - 1;
  std::vector<int64_t> by_distance;
  for (int64_t distance = 0; distance <= furthest; ++distance) by_distance.push_back(bucket(distance));
  for (int64_t distance = -furthest; distance < 0; ++distance) by_distance.push_back(bucket(distance));
  buckets_ = at::tensor(by_distance, at::kLong).to(weight_.device());
  positions_ = at::arange(furthest + 1, buckets_.options());
}

int64_t RelativeBias::bucket(int64_t distance) const {
  if (distance > 0) {
    return bidirectional_ ? after_[std::min(static_cast<size_t>(distance), after_.size() - 1)] : 0;
  }
  return before_[std::min(static_cast<size_t>(-distance), before_.size() - 1)];
}

at::Tensor RelativeBias::full(int64_t queries, int64_t keys) const {
  if (buckets_.defined()) return full_on_device(queries, keys);
  const at::Tensor buckets = at::empty({queries, keys}, at::kLong);  // [T,S]
  int64_t* out = buckets.mutable_data_ptr<int64_t>();
  for (int64_t t = 0; t < queries; ++t) {
    for (int64_t s = 0; s < keys; ++s) {
      *out++ = bucket(s - t);
    }
  }
  return at::embedding(weight_, buckets.to(weight_.device())).permute({2, 0, 1}).unsqueeze(0);
}

at::Tensor RelativeBias::full_on_device(int64_t queries, int64_t keys) const {
  const int64_t longest = std::max(queries, keys);
  const int64_t furthest = positions_.size(0) - 1;
  const at::Tensor positions = longest <= furthest ? positions_ : at::arange(longest, positions_.options());
  at::Tensor distance = positions.narrow(0, 0, keys) - positions.narrow(0, 0, queries).unsqueeze(1);  // [T,S]
  if (longest > furthest) distance.clamp_(-furthest, furthest);
  // Negative distances count from the end of the table.
  return at::embedding(weight_, buckets_.take(distance)).permute({2, 0, 1}).unsqueeze(0);
}

at::Tensor RelativeBias::of_distances(int64_t first, int64_t count) const {
  const at::Tensor buckets = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    buckets.mutable_data_ptr<int64_t>()[i] = bucket(first + i);
  }
  return weight_.detach().index_select(0, buckets.to(weight_.device())).t().contiguous();
}

at::Tensor RelativeBias::reversed_table(int64_t n) const {
  return of_distances(1 - n, n);
}

at::Tensor RelativeBias::by_distance(int64_t n) const {
  return of_distances(1 - n, std::max<int64_t>(0, 2 * n - 1));
}

}  // namespace draftsmith::model
