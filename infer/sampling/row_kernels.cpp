#include "infer/sampling/row_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/util.h"

namespace draftsmith::infer {
namespace {

// ---- Top-k and top-p of one row without sorting it
// Both keep the first tokens in the order by falling logit, the lower id first among equals.

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

// Returns the tokens of one bucket.
std::vector<int64_t> members(const std::vector<uint16_t>& buckets, size_t bucket) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] == bucket) ids.push_back(static_cast<int64_t>(i));
  }
  return ids;
}

// Returns what says whether a token stands before another one.
template <class T>
auto order_of(const T* logits) {
  return [logits](int64_t a, int64_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
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

// Sets the weights of all but the first k tokens to 0, 1 <= k < count. Returns the sum of the other weights.
template <class T>
double row_keep_top_k(const T* logits, int64_t count, int64_t k, T* weights) {
  const auto buckets = buckets_of(logits, count);
  std::array<int64_t, kBuckets> sizes{};
  for (const uint16_t bucket : buckets) ++sizes[bucket];
  size_t bucket = kBuckets - 1;
  int64_t left = k;
  for (; bucket > 0 && left > sizes[bucket]; --bucket) left -= sizes[bucket];
  auto ids = members(buckets, bucket);  // almost all, where a row is certain of one token
  const auto kept = std::min(ids.size(), static_cast<size_t>(left));
  std::nth_element(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(), order_of(logits));
  return drop(buckets, bucket, std::span(ids).subspan(kept), weights);
}

// Sets the weights of all tokens to 0 that have a mass of at least `mass` before them. The first token stays. Returns
// the sum of the other weights.
template <class T>
double row_keep_top_p(const T* logits, int64_t count, double mass, T* weights) {
  const auto buckets = buckets_of(logits, count);
  std::array<double, kBuckets> masses{};
  for (size_t i = 0; i < buckets.size(); ++i) masses[buckets[i]] += static_cast<double>(weights[i]);
  size_t bucket = kBuckets - 1;
  double before = 0;
  for (; bucket > 0 && (before + masses[bucket] < mass || masses[bucket] == 0); --bucket) before += masses[bucket];
  auto ids = members(buckets, bucket);
  std::sort(ids.begin(), ids.end(), order_of(logits));
  size_t kept = 0;
  while (kept < ids.size() && (before < mass || (before == 0 && kept == 0))) {
    before += static_cast<double>(weights[ids[kept++]]);
  }
  return drop(buckets, bucket, std::span(ids).subspan(kept), weights);
}

constexpr int64_t kBlock = 512;  // numbers whose sum or maximum is kept in the number's own type
constexpr int64_t kLanes = 32;   // parts of a sum or maximum, two or four vectors

// ---- Passes, compiled for each vector width

template <class T>
DRAFTSMITH_VECTOR_CODE T vector_max(const T* values, int64_t count) {
  T best[kLanes];
  std::fill(best, best + kLanes, -std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) best[j] = values[i + j] > best[j] ? values[i + j] : best[j];
  }
  for (; i < count; ++i) best[0] = values[i] > best[0] ? values[i] : best[0];
  return *std::max_element(best, best + kLanes);
}

// Returns the largest number; NaN if there is a NaN.
template <class T>
DRAFTSMITH_VECTOR_CODE T vector_max_or_nan(const T* values, int64_t count) {
  T best[kLanes];
  T broken[kLanes] = {};  // 1: the lane had a NaN
  std::fill(best, best + kLanes, -std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const T value = values[i + j];
      best[j] = value > best[j] ? value : best[j];
      broken[j] = value == value ? broken[j] : T(1);
    }
  }
  for (; i < count; ++i) {
    best[0] = values[i] > best[0] ? values[i] : best[0];
    broken[0] = values[i] == values[i] ? broken[0] : T(1);
  }
  const bool found = std::any_of(broken, broken + kLanes, [](T flag) { return flag != 0; });
  return found ? std::numeric_limits<T>::quiet_NaN() : *std::max_element(best, best + kLanes);
}

template <class T>
DRAFTSMITH_INLINE double block_sum(const T* values, int64_t count) {
  T parts[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) parts[j] += values[i + j];
  }
  for (; i < count; ++i) parts[0] += values[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) parts[j] += parts[j + half];
  }
  return static_cast<double>(parts[0]);
}

// Returns the sum of term(i) over i < count. A block's terms are stored before they are added: the compiler would not
// vectorise one loop that does both.
template <class T, class Term>
DRAFTSMITH_INLINE double sum(int64_t count, const Term& term) {
  T terms[kBlock];
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    for (int64_t i = 0; i < size; ++i) terms[i] = term(begin + i);
    total += block_sum(terms, size);
  }
  return total;
}

// Returns both sums from one pass.
template <class T>
DRAFTSMITH_VECTOR_CODE EntropySums entropy_sums(const T* logits, int64_t count, T highest) {
  constexpr T kLeast = sizeof(T) == sizeof(float) ? T(-100) : T(-1000);  // e^d is 0 there, which avoids 0 times -inf
  T terms[kBlock];
  T products[kBlock];
  EntropySums sums{static_cast<double>(highest)};
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    for (int64_t i = 0; i < size; ++i) {
      const T d = std::max(logits[begin + i] - highest, kLeast);
      terms[i] = exponential(d);
      products[i] = terms[i] * d;
    }
    sums.total += block_sum(terms, size);
    sums.weighted += block_sum(products, size);
  }
  return sums;
}

template <class T>
DRAFTSMITH_VECTOR_CODE double exponential_sum(const T* logits, int64_t count, T highest) {
  return sum<T>(count, [=](int64_t i) { return exponential(logits[i] - highest); });
}

template <class T>
DRAFTSMITH_VECTOR_CODE double exponentials(const T* logits, int64_t count, T highest, T scale, T* out) {
  return sum<T>(count, [=](int64_t i) { return out[i] = exponential((logits[i] - highest) * scale); });
}

template <class T>
DRAFTSMITH_VECTOR_CODE void multiply(T* values, int64_t count, T factor) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

template <class T>
DRAFTSMITH_VECTOR_CODE double weight(const T* values, int64_t count) {
  return block_sum(values, count);
}

template <class T>
DRAFTSMITH_VECTOR_CODE double residual(T* p, const T* q, int64_t count, T scale) {
  return sum<T>(count, [=](int64_t i) { return p[i] = std::max(scale * p[i] - q[i], T(0)); });
}

template <class T>
DRAFTSMITH_VECTOR_CODE double excess_sum(const T* p, const T* q, int64_t count, T scale) {
  return sum<T>(count, [=](int64_t i) { return std::max(scale * p[i] - q[i], T(0)); });
}

template <class T>
DRAFTSMITH_VECTOR_CODE double overlap_sum(const T* p, const T* q, int64_t count) {
  return sum<T>(count, [=](int64_t i) { return std::min(p[i], q[i]); });
}

// Sets weights below `least` to 0. Returns the sum of the others. The largest weight is 1, of the largest logit.
template <class T>
DRAFTSMITH_VECTOR_CODE double keep_at_least(T* weights, int64_t count, T least) {
  return sum<T>(count, [=](int64_t i) { return weights[i] = weights[i] < least ? T(0) : weights[i]; });
}

}  // namespace

at::Tensor promoted(const at::Tensor& logits) {
  const auto type = logits.scalar_type();
  return type == at::kDouble || type == at::kFloat ? logits : logits.to(at::kFloat);
}

template <class T>
int64_t row_argmax(const T* values, int64_t count) {
  T best = -std::numeric_limits<T>::infinity();
  int64_t block = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const T here = vector_max_or_nan(values + begin, std::min(kBlock, count - begin));
    if (!(here < std::numeric_limits<T>::infinity())) return kNoToken;
    if (here > best) {
      best = here;
      block = begin;
    }
  }
  return std::find(values + block, values + count, best) - values;
}

template <class T>
SoftmaxSums row_softmax_sums(const T* logits, int64_t count) {
  const T highest = vector_max(logits, count);
  return {static_cast<double>(highest), exponential_sum(logits, count, highest)};
}

template <class T>
void row_warp(const T* logits, int64_t count, const Warping& warping, T* out) {
  const T highest = vector_max(logits, count);
  double total = exponentials(logits, count, highest, static_cast<T>(1 / warping.temperature), out);
  if (!std::isfinite(total)) {  // truncation could drop a NaN
    std::fill(out, out + count, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  if (warping.top_k > 0 && warping.top_k < count) total = row_keep_top_k(logits, count, warping.top_k, out);
  if (warping.top_p < 1) total = row_keep_top_p(logits, count, warping.top_p * total, out);
  if (warping.min_p > 0) total = keep_at_least(out, count, static_cast<T>(warping.min_p));
  multiply(out, count, static_cast<T>(1 / total));
}

// Adds block sums first and single weights only inside one block, so that the pass over V is vector code.
template <class T>
int64_t row_draw(const T* weights, int64_t count, double uniform) {
  std::vector<double> sums;
  sums.reserve(static_cast<size_t>((count + kBlock - 1) / kBlock));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    sums.push_back(weight(weights + begin, std::min(kBlock, count - begin)));
  }
  double threshold = std::accumulate(sums.begin(), sums.end(), 0.0) * uniform;
  if (!std::isfinite(threshold)) return kNoToken;
  size_t block = 0;
  for (; block + 1 < sums.size() && threshold >= sums[block]; ++block) threshold -= sums[block];
  int64_t last = count - 1;  // where rounding lets nothing pass the threshold: the last token with weight
  for (int64_t i = static_cast<int64_t>(block) * kBlock; i < count; ++i) {
    if (weights[i] <= 0) continue;
    if (threshold < static_cast<double>(weights[i])) return i;
    threshold -= static_cast<double>(weights[i]);
    last = i;
  }
  return last;
}

template <class T>
double row_residual(T* p, const T* q, int64_t count, double scale) {
  return residual(p, q, count, static_cast<T>(scale));
}

template <class T>
double row_excess(const T* p, const T* q, int64_t count, double scale) {
  return excess_sum(p, q, count, static_cast<T>(scale));
}

template <class T>
double row_overlap(const T* p, const T* q, int64_t count) {
  return overlap_sum(p, q, count);
}

template <class T>
EntropySums row_entropy_sums(const T* logits, int64_t count) {
  return entropy_sums(logits, count, vector_max(logits, count));
}

// Skips blocks without a number above the k-th largest so far, which vector code finds.
template <class T>
int64_t row_top(const T* values, int64_t count, int64_t k, int64_t* ids) {
  constexpr int64_t kTopBlock = 128;
  int64_t found = 0;
  for (int64_t begin = 0; begin < count; begin += kTopBlock) {
    const int64_t end = std::min(count, begin + kTopBlock);
    if (found == k && !(vector_max(values + begin, end - begin) > values[ids[k - 1]])) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (!(values[i] > -std::numeric_limits<T>::infinity())) continue;
      if (found == k && !(values[i] > values[ids[k - 1]])) continue;
      int64_t place = found < k ? found++ : k - 1;
      for (; place > 0 && values[i] > values[ids[place - 1]]; --place) ids[place] = ids[place - 1];
      ids[place] = i;
    }
  }
  return found;
}

#define DRAFTSMITH_ROW_KERNELS(T)                                  \
  template int64_t row_argmax(const T*, int64_t);                  \
  template SoftmaxSums row_softmax_sums(const T*, int64_t);        \
  template void row_warp(const T*, int64_t, const Warping&, T*);   \
  template int64_t row_draw(const T*, int64_t, double);            \
  template double row_residual(T*, const T*, int64_t, double);     \
  template double row_excess(const T*, const T*, int64_t, double); \
  template double row_overlap(const T*, const T*, int64_t);        \
  template EntropySums row_entropy_sums(const T*, int64_t);        \
  template int64_t row_top(const T*, int64_t, int64_t, int64_t*);
DRAFTSMITH_ROW_KERNELS(float)
DRAFTSMITH_ROW_KERNELS(double)

}  // namespace draftsmith::infer
