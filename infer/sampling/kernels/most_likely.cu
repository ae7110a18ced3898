// The most likely token of each position, for infer/sampling/sampling.h: the lowest id among equals, and kNoToken where
// a logit is NaN or positive infinity. One position a block of 1,024 threads.
#include "base/kernels/numbers.cuh"

namespace kernel {

// A token and its logit. Of two, the better one has the larger logit, then the lower id.
struct Candidate {
  float logit;
  Int64 token;
};

__device__ Candidate better(const Candidate& a, const Candidate& b) {
  const bool second = b.logit > a.logit || (b.logit == a.logit && b.token < a.token);
  return second ? b : a;
}

template <class T>
__device__ void most_likely(const T* logits, Int64* tokens, int vocabulary, Int64 no_token) {
  __shared__ Candidate by_warp[32];
  __shared__ int broken_by_warp[32];
  const T* row = logits + static_cast<Int64>(blockIdx.x) * vocabulary;
  Candidate best{-infinity(), 0x7fffffff};
  int broken = 0;
  for (int i = static_cast<int>(threadIdx.x); i < vocabulary; i += static_cast<int>(blockDim.x)) {
    const float logit = widen(row[i]);
    broken |= logit < infinity() ? 0 : 1;
    best = better(best, Candidate{logit, i});
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const Candidate other{__shfl_xor_sync(0xffffffffu, best.logit, distance),
                          __shfl_xor_sync(0xffffffffu, best.token, distance)};
    best = better(best, other);
    broken |= __shfl_xor_sync(0xffffffffu, broken, distance);
  }
  if (threadIdx.x % 32 == 0) {
    by_warp[threadIdx.x / 32] = best;
    broken_by_warp[threadIdx.x / 32] = broken;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned int warp = 1; warp < blockDim.x / 32; ++warp) {
    best = better(best, by_warp[warp]);
    broken |= broken_by_warp[warp];
  }
  tokens[blockIdx.x] = broken != 0 ? no_token : best.token;
}

}  // namespace kernel

#define MOST_LIKELY_KERNEL(suffix, T)                                                                \
  extern "C" __global__ void __launch_bounds__(1024)                                                 \
      most_likely_##suffix(const T* logits, long long* tokens, int vocabulary, long long no_token) { \
    kernel::most_likely<T>(logits, tokens, vocabulary, no_token);                                    \
  }

MOST_LIKELY_KERNEL(fp32, float)
MOST_LIKELY_KERNEL(bf16, kernel::BFloat16)
MOST_LIKELY_KERNEL(fp16, kernel::Half)
