#include "model/transformer/position_bias.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace draftsmith::model {
namespace {

// Returns ALiBi's slopes, each head's penalty for a step of distance: 2^(-8 i / H) for powers of two, interpolated
// otherwise. [H]
at::Tensor alibi_slopes(int64_t heads) {
  int64_t power = 1;  // the largest power of two up to H
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power; ++i) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  }
  // The others take every second slope of twice as many heads.
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2) {
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(power)));
  }
  return at::tensor(slopes, at::kDouble);
}

}  // namespace

PositionBias::PositionBias(const TransformerConfig& config, const at::Tensor& weight, bool bidirectional,
                           const at::Tensor& like) {
  if (config.positions == Positions::kRelativeBias) {
    relative_.emplace(weight, bidirectional, config.relative_max_distance);
  } else if (config.positions == Positions::kAlibi) {
    slopes_ = alibi_slopes(config.heads).to(like.device(), like.scalar_type());
  }
}

at::Tensor PositionBias::full(int64_t queries, int64_t keys) const {
  if (relative_) {
    return relative_->full(queries, keys);
  }
  if (!slopes_.defined()) {
    return {};
  }
  const at::Tensor query = at::arange(queries, slopes_.options()).unsqueeze(1);     // [T,1]
  const at::Tensor distance = (query - at::arange(keys, slopes_.options())).abs();  // [T,S]; blocks look ahead
  return (slopes_.view({-1, 1, 1}) * -distance).unsqueeze(0);
}

at::Tensor PositionBias::reversed_table(int64_t n, int64_t later) const {
  if (relative_) {
    return relative_->reversed_table(n);
  }
  if (!slopes_.defined()) {
    return {};
  }
  return slopes_.unsqueeze(1) * -at::arange(1 - n, 1 + later, slopes_.options()).abs();  // [H,n+later]
}

at::Tensor PositionBias::by_distance(int64_t n) const {
  if (relative_) {
    return relative_->by_distance(n);
  }
  if (!slopes_.defined()) {
    return {};
  }
  const at::Tensor distance = at::arange(std::min<int64_t>(1 - n, n), n, slopes_.options()).abs();
  return slopes_.unsqueeze(1) * -distance;  // [H,2n-1]
}

}  // namespace draftsmith::model
