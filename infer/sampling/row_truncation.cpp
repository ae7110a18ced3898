#include "infer/sampling/row_truncation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

namespace draftsmith::infer {
namespace {

// Bits that select a number's bucket: sign, exponent and three bits of the mantissa. Only the bucket with the boundary
// is sorted.
constexpr int kBucketBits = 12;
constexpr size_t kBuckets = size_t{1} << kBucketBits;

// Returns a number's bucket. Larger numbers have the same or a higher one.
inline uint16_t bucket_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0F);  // -0 becomes 0
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<uint16_t>(ordered >> (32 - kBucketBits));
}

template <class T>
std::vector<uint16_t> buckets_of(const T* logits, int64_t count) {
  std::vector<uint16_t> buckets(static_cast<size_t>(count));
  std::transform(logits, logits + count, buckets.begin(), [](T value) { return bucket_of(static_cast<float>(value)); });
  return buckets;
}

// Returns the tokens of one bucket in order.
template <class T>
std::vector<int64_t> members(const T* logits, const std::vector<uint16_t>& buckets, size_t bucket) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] == bucket) ids.push_back(static_cast<int64_t>(i));
  }
  std::sort(ids.begin(), ids.end(),
            [&](int64_t a, int64_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  return ids;
}

// Sets the weights of the dropped tokens and of all lower buckets to 0. Returns the sum of the other weights.
template <class T>
double drop(const std::vector<uint16_t>& buckets, size_t bucket, std::span<const int64_t> dropped, T* weights) {
  for (const int64_t id : dropped) weights[id] = 0;
  double total = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    weights[i] = buckets[i] >= bucket ? weights[i] : T(0);
    total += static_cast<double>(weights[i]);
  }
  return total;
}

}  // namespace

template <class T>
double row_keep_top_k(const T* logits, int64_t count, int64_t k, T* weights) {
  const auto buckets = buckets_of(logits, count);
  std::array<int64_t, kBuckets> sizes{};
  for (const uint16_t bucket : buckets) ++sizes[bucket];
  size_t bucket = kBuckets - 1;
  int64_t left = k;
  for (; bucket > 0 && left > sizes[bucket]; --bucket) left -= sizes[bucket];
  const auto ids = members(logits, buckets, bucket);
  return drop(buckets, bucket, std::span(ids).subspan(std::min(ids.size(), static_cast<size_t>(left))), weights);
}

template <class T>
double row_keep_top_p(const T* logits, int64_t count, double mass, T* weights) {
  const auto buckets = buckets_of(logits, count);
  std::array<double, kBuckets> masses{};
  for (size_t i = 0; i < buckets.size(); ++i) masses[buckets[i]] += static_cast<double>(weights[i]);
  size_t bucket = kBuckets - 1;
  double before = 0;
  for (; bucket > 0 && (before + masses[bucket] < mass || masses[bucket] == 0); --bucket) before += masses[bucket];
  const auto ids = members(logits, buckets, bucket);
  size_t kept = 0;
  while (kept < ids.size() && (before < mass || (before == 0 && kept == 0))) {
    before += static_cast<double>(weights[ids[kept++]]);
  }
  return drop(buckets, bucket, std::span(ids).subspan(kept), weights);
}

template double row_keep_top_k<float>(const float*, int64_t, int64_t, float*);
template double row_keep_top_k<double>(const double*, int64_t, int64_t, double*);
template double row_keep_top_p<float>(const float*, int64_t, double, float*);
template double row_keep_top_p<double>(const double*, int64_t, double, double*);

}  // namespace draftsmith::infer
