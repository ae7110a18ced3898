// Draws of tokens, for infer/sampling/sampling.h; a block a row.
#include "base/kernels/block.cuh"
#include "base/kernels/numbers.cuh"
#include "infer/sampling/kernels/tokens.cuh"

namespace kernel {

constexpr int kWarps = 32;  // of every block
constexpr int kNone = 0x7fffffff;

__device__ int least_of_warp(int value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = other < value ? other : value;
  }
  return value;
}

__device__ double sum_of_warp(double value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// Returns the first i at or after `first` whose weight takes the running sum `before` past `aim`; else the last with
// weight, else count - 1. The threads of a warp call it together.
template <class Weight>
__device__ int walk(const Weight& weight, int first, int count, double before, double aim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int last = -1;
  for (; first < count; first += 32) {
    const int present = count - first < 32 ? count - first : 32;
    const double own = lane < present ? weight(first + lane) : 0.0;
    const double all = sum_of_warp(own);
    double sum = before;
    if (before + all > aim) {
      KERNEL_UNROLL(1)
      for (int i = 0; i <= lane && i < present; ++i) sum += weight(first + i);
    }
    const int found = least_of_warp(own > 0 && sum > aim ? lane : kNone);
    if (found != kNone) return first + found;
    const int nearest = least_of_warp(own > 0 ? -lane : kNone);  // the highest lane with weight
    if (nearest != kNone) last = first - nearest;
    before += all;
  }
  return last < 0 ? count - 1 : last;
}

// Returns a token drawn from weights, to all threads: the first whose running sum passes uniform * total, or kNoToken
// if the total is not finite. Sums are fp64: each warp's part of the weights first, then the parts in their order.
template <class Weight>
__device__ Int64 drawn(const Weight& weight, int count, double uniform) {
  __shared__ double sums[kWarps];
  __shared__ int token;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = (count + kWarps - 1) / kWarps;
  const int end = (warp + 1) * part < count ? (warp + 1) * part : count;
  double sum = 0;
  KERNEL_UNROLL(4)
  for (int i = warp * part + lane; i < end; i += 32) sum += weight(i);
  sum = sum_of_warp(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  double total = 0;
  KERNEL_UNROLL(1)
  for (int i = 0; i < kWarps; ++i) total += sums[i];
  const double aim = total * uniform;
  double before = 0;
  int chosen = 0;
  KERNEL_UNROLL(1)
  for (; chosen + 1 < kWarps && before + sums[chosen] <= aim; ++chosen) before += sums[chosen];
  if (warp == chosen) {
    const int found = walk(weight, chosen * part < count ? chosen * part : count, count, before, aim);
    if (lane == 0) token = found;
  }
  __syncthreads();
  return total - total == 0 ? static_cast<Int64>(token) : kNoToken;
}

// Draws a token for each row of weights [B,V].
__device__ void draw(const float* weights, const double* uniforms, Int64* tokens, int vocabulary) {
  const float* row = weights + static_cast<Int64>(blockIdx.x) * vocabulary;
  const Int64 token = drawn([row](int i) { return static_cast<double>(row[i]); }, vocabulary, uniforms[blockIdx.x]);
  if (threadIdx.x == 0) tokens[blockIdx.x] = token;
}

// Drafted tokens of a batch and the distributions behind them.
struct Drafts {
  const float* p;          // [B,G+1,V] the target's
  const float* q;          // [B,G,V] the drafter's
  const Int64* tokens;     // [B,G]
  const Int64* counts;     // [B]
  const double* r_accept;  // [B,G]
  const double* r_next;    // [B,G+1]
};

// Applies speculative sampling to a row: how many drafted tokens are kept, and the token after them, from
// norm(max(0, p - q)) after a rejection, else from p.
__device__ void reject(const Drafts& drafts, Int64* accepted, Int64* next, int window, int vocabulary) {
  const Int64 b = blockIdx.x;
  const float* p = drafts.p + b * (window + 1) * vocabulary;
  const float* q = drafts.q + b * window * vocabulary;
  const int count = static_cast<int>(drafts.counts[b]);
  int kept = 0;
  for (; kept < count; ++kept) {
    const Int64 place = static_cast<Int64>(kept) * vocabulary + drafts.tokens[b * window + kept];
    const double chance = drafts.r_accept[b * window + kept] * static_cast<double>(q[place]);
    if (!(chance < static_cast<double>(p[place]))) break;
  }
  const float* own = p + static_cast<Int64>(kept) * vocabulary;
  const float* other = q + static_cast<Int64>(kept) * vocabulary;
  double rest = 0;
  if (kept < count) {
    for (int i = static_cast<int>(threadIdx.x); i < vocabulary; i += static_cast<int>(blockDim.x)) {
      const float left = own[i] - other[i];
      rest += left > 0 ? static_cast<double>(left) : left == left ? 0.0 : static_cast<double>(left);
    }
  }
  const bool residual = block_sum(rest) > 0;
  const auto weight = [own, other, residual](int i) {
    const float left = residual ? own[i] - other[i] : own[i];
    return static_cast<double>(left < 0 ? 0.0f : left);
  };
  const Int64 token = drawn(weight, vocabulary, drafts.r_next[b * (window + 1) + kept]);
  if (threadIdx.x > 0) return;
  accepted[b] = kept;
  next[b] = token;
}

}  // namespace kernel

extern "C" __global__ void __launch_bounds__(1024, 1)
    draw_fp32(const float* weights, const double* uniforms, long long* tokens, int vocabulary) {
  kernel::draw(weights, uniforms, tokens, vocabulary);
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    reject_fp32(const float* p, const float* q, const long long* tokens, const long long* counts,
                const double* r_accept, const double* r_next, long long* accepted, long long* next, int window,
                int vocabulary) {
  kernel::reject({p, q, tokens, counts, r_accept, r_next}, accepted, next, window, vocabulary);
}
