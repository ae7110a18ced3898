// T5's relative-position bias (Raffel et al. 2020, section 2.1): a learned number for each head and bucket of the
// distance between key and query, added to attention scores in all layers of a stack. Beyond half of the buckets,
// bucket widths grow logarithmically.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/aten.h"

namespace draftsmith::model {

class RelativeBias {
 public:
  RelativeBias() = default;
  // Takes weight [buckets,H]. Bidirectional (encoder): half of the buckets are for keys after the query.
  RelativeBias(at::Tensor weight, bool bidirectional, int64_t max_distance);

  // Returns the bias of queries 0..T-1 and keys 0..S-1, with gradient. [1,H,T,S]
  at::Tensor full(int64_t queries, int64_t keys) const;
  // Returns the bias of keys at or before the query, the nearest last: column n-1-d holds distance d. No gradient.
  // [H,n]
  at::Tensor reversed_table(int64_t n) const { return of_distances(1 - n, n); }
  // Returns the bias by key position minus query position: column n-1+d holds d, from 1-n to n-1. No gradient. [H,2n-1]
  at::Tensor by_distance(int64_t n) const { return of_distances(1 - n, std::max<int64_t>(0, 2 * n - 1)); }

 private:
  // Returns the bias of `count` distances from `first` on. No gradient. [H,count]
  at::Tensor of_distances(int64_t first, int64_t count) const;

  at::Tensor weight_;
  int64_t furthest_ = 0;  // n; distances beyond have the buckets of n and -n
  // Buckets of the distances 0..n, -n..-1, int64 [2n+1], so that negative ones count from the end; the same and the
  // positions 0..n on the weight's device.
  at::Tensor host_buckets_, buckets_, positions_;
};

}  // namespace draftsmith::model
