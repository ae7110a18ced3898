// T5's relative-position bias (Raffel et al. 2020, section 2.1): a learned number for each head and bucket of the
// distance between key and query, added to attention scores in all layers of a stack. Beyond half of the buckets,
// bucket widths grow logarithmically.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

class RelativeBias {
 public:
  RelativeBias() = default;
  // Takes weight [buckets,H]. Bidirectional (encoder): half of the buckets are for keys after the query.
  RelativeBias(at::Tensor weight, bool bidirectional, int64_t max_distance);

  // Returns the bucket of key position minus query position.
  int64_t bucket(int64_t distance) const;
  // Returns the bias of queries 0..T-1 and keys 0..S-1, with gradient. [1,H,T,S]
  at::Tensor full(int64_t queries, int64_t keys) const;
  // Returns the bias of keys at or before the query, the nearest last: column n-1-d holds distance d. No gradient.
  // [H,n]
  at::Tensor reversed_table(int64_t n) const;
  // Returns the bias by key position minus query position: column n-1+d holds d, from 1-n to n-1. No gradient. [H,2n-1]
  at::Tensor by_distance(int64_t n) const;

 private:
  // Returns the bias of `count` distances from `first` on. No gradient. [H,C]
  at::Tensor of_distances(int64_t first, int64_t count) const;
  at::Tensor full_on_device(int64_t queries, int64_t keys) const;

  at::Tensor weight_;
  bool bidirectional_ = false;
  std::vector<int64_t> before_;  // bucket of key at distance d before the query; the last holds for all beyond
  std::vector<int64_t> after_;   // likewise for keys after the query
  // On devices: the positions 0..n, int64 [n+1], and buckets of the distances 0..n, -n..-1, int64 [2n+1]. Distances
  // beyond have the buckets of n and -n.
  at::Tensor positions_, buckets_;
};

}  // namespace draftsmith::model
