// Bias of attention scores by positions: T5's relative bias, ALiBi's (Press et al. 2022), or none.
#pragma once

#include <optional>

#include "model/layers/relative_bias.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

class PositionBias {
 public:
  PositionBias() = default;
  // `weight`: T5's table [buckets,H], undefined for other kinds of positions. `like` gives dtype and device.
  PositionBias(const TransformerConfig& config, const at::Tensor& weight, bool bidirectional, const at::Tensor& like);

  // Returns the bias of queries 0..T-1 and keys 0..S-1, with gradient if it is learned. [1,H,T,S]; undefined: none.
  at::Tensor full(int64_t queries, int64_t keys) const;
  // Returns the bias of keys at or before the query, the nearest last, then of the next `later` keys: column n-1-d
  // holds distance d. Only ALiBi has later keys, as far away as earlier ones. [H,n+later]; undefined: none.
  at::Tensor reversed_table(int64_t n, int64_t later = 0) const;
  // Returns the bias by key position minus query position: column n-1+d holds d, from 1-n to n-1. No gradient.
  // [H,2n-1]; undefined: none.
  at::Tensor by_distance(int64_t n) const;

 private:
  std::optional<RelativeBias> relative_;
  at::Tensor slopes_;  // [H]
};

}  // namespace draftsmith::model
