// Warped probabilities of logits, for infer/sampling/warping_gpu.h: temperature, top-k, top-p and min-p. A block a row,
// of 64 to 1,024 threads, a power of two.
//
// Weights and their total are the CPU's to the bit (infer/sampling/row_kernels.cpp) where that one multiplies and adds
// with one rounding. So the kept tokens are the CPU's, too (last_kept.cuh). Compiled with --fmad=false.
#include "base/kernels/block_largest.cuh"
#include "base/kernels/block_sum.cuh"
#include "base/kernels/numbers.cuh"
#include "base/kernels/vectors.cuh"
#include "infer/sampling/kernels/last_kept.cuh"

namespace kernel {

constexpr int kSumBlock = 512;  // numbers whose sum is fp32, as on the CPU

// Returns exp(x) for x <= 0, 0 below -87, in the steps of exponential() in base/vector_math.h.
__device__ inline float exponential(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;  // NaN stays
  const float finite = x > -87.0f ? x : -87.0f;   // NaN does not
  const float n = floorf(multiply_add(finite, 1.44269504088896341f, 0.5f));
  const float r = multiply_add(n, 2.12194440e-4f, multiply_add(-n, 0.693359375f, clamped));
  float p = 1.9875691500e-4f;
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  p = multiply_add(p * r, r, r) + 1.0f;
  const float power = __uint_as_float(static_cast<Word>(static_cast<int>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

// Writes a token's weight, and counts it in the bins if they are wanted. Returns the weight.
template <class T>
__device__ float weigh(const WarpedRow<T>& row, int token, Measure measure, Search* bins) {
  const float warped = row.warped(token);
  const float weight = exponential(warped);
  row.weights[token] = weight;
  if (bins != nullptr && weight > 0) {
    const int bin = bin_of(warped);
    bins->add(bin, measure.units(weight, bin));
  }
  return weight;
}

// Writes the weights. Returns their sum, added as on the CPU: in fp32 within 512 numbers, in fp64 beyond.
template <class T>
__device__ double weigh_all(const WarpedRow<T>& row, Measure measure, Search* bins) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int step = static_cast<int>(blockDim.x) / 32 * kSumBlock;
  double total = 0;
  for (int begin = warp * kSumBlock; begin < row.vocabulary; begin += step) {
    const int end = row.vocabulary - begin < kSumBlock ? row.vocabulary : begin + kSumBlock;
    const int whole = begin + (end - begin) / 32 * 32;
    float sum = 0;
    KERNEL_UNROLL(4)
    for (int i = begin + lane; i < whole; i += 32) sum += weigh(row, i, measure, bins);
    if (whole < end) {  // lane 0 adds the rest
      const float rest = whole + lane < end ? weigh(row, whole + lane, measure, bins) : 0.0f;
      KERNEL_UNROLL(1)
      for (int i = 0; i < end - whole; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, rest, i);
        if (lane == 0) sum += other;
      }
    }
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    total += static_cast<double>(sum);
  }
  return block_sum(lane == 0 ? total : 0.0);
}

// Tokens that are kept: down to a place, and to a weight.
struct Kept {
  Place last;
  float least;

  template <class T>
  __device__ float weight(const WarpedRow<T>& row, int token) const {
    const float weight = row.weights[token];
    return weight >= least && (last == 0 || place_of(row.logit(token), token) >= last) ? weight : 0.0f;
  }
};

// Returns the sum of the kept weights, and counts them in the bins if they are wanted.
template <class T>
__device__ double kept_sum(const WarpedRow<T>& row, const Kept& kept, Measure measure, Search* bins) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < row.vocabulary; i += static_cast<int>(blockDim.x)) {
    const float weight = kept.weight(row, i);
    sum += static_cast<double>(weight);
    if (bins == nullptr || !(weight > 0)) continue;
    const int bin = bin_of(row.warped(i));
    bins->add(bin, measure.units(weight, bin));
  }
  return block_sum(sum);
}

// Settings of infer/sampling/warping.h. top_k: 0 or V for off.
struct WarpSettings {
  float scale;
  int top_k;
  double top_p;
  float min_p;
};

// Writes the probabilities of a row: all NaN if a logit is NaN or the largest is infinite.
template <class T>
__device__ void warp_row(const T* logits, float* out, int vocabulary, const WarpSettings& settings) {
  __shared__ Search search;
  const Int64 begin = static_cast<Int64>(blockIdx.x) * vocabulary;
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  WarpedRow<T> row{logits + begin, out + begin, vocabulary, -infinite<float>(), settings.scale};
  float highest = row.highest;
  KERNEL_UNROLL(4)
  for (int i = thread; i < vocabulary; i += threads) highest = row.logit(i) > highest ? row.logit(i) : highest;
  row.highest = block_largest(highest);
  const bool by_count = settings.top_k > 0 && settings.top_k < vocabulary;
  const bool by_mass = settings.top_p < 1;
  search.clear_bins();
  Measure measure{!by_count};
  double total = weigh_all(row, measure, by_count || by_mass ? &search : nullptr);
  const bool usable = total - total == 0;
  Kept kept{0, 0};
  bool searches = by_count || by_mass;
  bool sums = searches || settings.min_p > 0;
  KERNEL_UNROLL(1)
  while (usable && sums) {
    const double aim = measure.weights ? settings.top_p * total : settings.top_k;
    if (searches) kept.last = last_kept(row, measure, kept.last, aim, search);
    searches = by_mass && !measure.weights;
    measure.weights = true;
    if (!searches) kept.least = settings.min_p;
    search.clear_bins();
    total = kept_sum(row, kept, measure, searches ? &search : nullptr);
    sums = searches;
  }
  const float factor = static_cast<float>(1 / total);
  for (int i = thread; i < vocabulary; i += threads) {
    row.weights[i] = usable ? kept.weight(row, i) * factor : __uint_as_float(0x7fc00000u);
  }
}

}  // namespace kernel

#define WARPING_KERNEL(suffix, T)                                                                                     \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                                               \
      warp_##suffix(const T* logits, float* out, int vocabulary, float scale, int top_k, double top_p, float min_p) { \
    kernel::warp_row<T>(logits, out, vocabulary, {scale, top_k, top_p, min_p});                                       \
  }

WARPING_KERNEL(fp32, float)
WARPING_KERNEL(bf16, kernel::BFloat16)
WARPING_KERNEL(fp16, kernel::Half)
