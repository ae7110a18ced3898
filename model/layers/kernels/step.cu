// Operators of a cached step, for model/layers/step_operators.h: attention over K/V caches, writes to them, rotation.
//
// Lengths and places of tokens are read on the device, so that recorded launches serve every step. What a query gets
// depends neither on the other rows nor on the number of tokens in the step.
#include "base/kernels/numbers.cuh"

namespace kernel {

constexpr int kThreads = 256;

// Returns the sum or the largest of the values of all threads, to each of them. Every thread calls it.
template <class T, class Join>
__device__ T joined(T value, T* by_warp, const Join& join) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  __syncthreads();  // what was joined before has been read
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = by_warp[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) value = join(value, by_warp[warp]);
  return value;
}

// A layer's caches, which the tokens of a step attend to, and their shape.
template <class T>
struct Caches {
  const T* keys;          // [R,kv,slots,width]
  const T* values;        // [R,kv,slots,width]
  const Int64* row;       // [B] rows of the caches
  const Int64* prefix;    // [B,L] the slots [0,prefix) are seen
  const Int64* own;       // [B,L] a further slot that is seen, or null
  const Int64* position;  // [B,L]
  const T* bias;          // [H,columns] by distance, the last for distance 0; or null
  int columns;
  int shared;  // kv
  int slots;
  int width;  // at most kThreads
};

// Computes the context of one head of one token a block: softmax(scale q k^T + bias) v over the slots it sees, or zeros
// if it sees none. Keys are taken in chunks of a key a thread; then each thread sums one column of every n-th value.
template <class T>
__device__ void attend(const T* query, T* context, const Caches<T>& caches, int tokens, int heads, Int64 row_stride,
                       Int64 token_stride, double scale) {
  using Sum = typename Wide<T>::Type;
  __shared__ Sum asked[kThreads];
  __shared__ Sum weights[kThreads];
  __shared__ Sum by_warp[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int width = caches.width;
  const int head = static_cast<int>(blockIdx.x % heads);
  const Int64 place = blockIdx.x / heads;  // of the token: b * L + j
  const Int64 b = place / tokens;
  const Int64 own = caches.own == nullptr ? -1 : caches.own[place];
  const Int64 seen = caches.prefix[place];
  const Int64 count = seen + (own < 0 ? 0 : 1);
  const Int64 first_slot = (caches.row[b] * caches.shared + head / (heads / caches.shared)) * caches.slots;
  const T* keys = caches.keys + first_slot * width;
  const T* values = caches.values + first_slot * width;
  query += b * row_stride + place % tokens * token_stride + head * width;
  if (thread < width) asked[thread] = widen(query[thread]);
  __syncthreads();

  const auto larger = [](Sum a, Sum c) { return a > c ? a : c; };
  const auto plus = [](Sum a, Sum c) { return a + c; };
  const Sum lowest = -infinite<Sum>();
  const int groups = kThreads / width;
  const int column = thread % width;
  const int group = thread / width;
  Sum highest = lowest;
  Sum total = 0;
  Sum sum = 0;
  for (Int64 first = 0; first < count; first += kThreads) {
    const Int64 index = first + thread;
    Sum score = lowest;
    if (index < count) {
      const Int64 slot = index < seen ? index : own;
      Sum product = 0;
      KERNEL_UNROLL(8)
      for (int i = 0; i < width; ++i) product += asked[i] * widen(keys[slot * width + i]);
      score = product * static_cast<Sum>(scale);
      if (caches.bias != nullptr) {
        const Int64 distance = index < seen ? caches.position[place] - slot : 0;
        Int64 bucket = caches.columns - 1 - distance;
        bucket = bucket < 0 ? 0 : bucket >= caches.columns ? caches.columns - 1 : bucket;
        score += widen(caches.bias[static_cast<Int64>(head) * caches.columns + bucket]);
      }
    }
    const Sum before = highest;
    highest = larger(highest, joined(score, by_warp, larger));
    const Sum shrink = first == 0 ? Sum(0) : exp(before - highest);
    const Sum weight = index < count ? exp(score - highest) : Sum(0);
    weights[thread] = weight;
    total = total * shrink + joined(weight, by_warp, plus);  // its barriers also show the weights to all
    sum *= shrink;
    const int present = static_cast<int>(count - first < kThreads ? count - first : kThreads);
    for (int i = group; i < present && group < groups; i += groups) {
      const Int64 slot = first + i < seen ? first + i : own;
      sum += weights[i] * widen(values[slot * width + column]);
    }
    __syncthreads();  // the weights have been read
  }
  weights[thread] = sum;
  __syncthreads();
  if (thread >= width) return;
  for (int i = 1; i < groups; ++i) sum += weights[i * width + column];
  context[(place * heads + head) * width + column] = Rounding<T>::of(count > 0 ? sum / total : Sum(0));
}

// Writes keys and values [B,L,kv*width], rows and tokens strided, to slot[b,j] of row[b]; a number a thread.
template <class T>
__device__ void write_slots(T* key_cache, T* value_cache, const T* key, const T* value, const Int64* row,
                            const Int64* slot, Int64 numbers, int tokens, int shared, int slots, int width,
                            Int64 key_row, Int64 key_token, Int64 value_row, Int64 value_token) {
  const Int64 index = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= numbers) return;
  const Int64 inner = static_cast<Int64>(shared) * width;
  const Int64 place = index / inner;
  const Int64 i = index % inner;
  const Int64 b = place / tokens;
  const Int64 j = place % tokens;
  const Int64 to = ((row[b] * shared + i / width) * slots + slot[place]) * width + i % width;
  key_cache[to] = key[b * key_row + j * key_token + i];
  value_cache[to] = value[b * value_row + j * value_token + i];
}

template <class T>
__device__ typename Wide<T>::Type rounded(typename Wide<T>::Type value) {
  return widen(Rounding<T>::of(value));
}

// Rotates heads of x [B,L,h*width], rows and tokens strided, in place by the table's rows; a pair a thread. Products
// and sums are rounded to T, as tensor operations do.
template <class T>
__device__ void rotate(T* x, const T* cosine, const T* sine, const Int64* position, Int64 pairs, int tokens, int heads,
                       int width, int half, Int64 row_stride, Int64 token_stride) {
  const Int64 index = static_cast<Int64>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= pairs) return;
  const int i = static_cast<int>(index % half);
  const int head = static_cast<int>(index / half % heads);
  const Int64 place = index / half / heads;
  const Int64 angle = position[place] * half + i;
  T* pair = x + place / tokens * row_stride + place % tokens * token_stride + head * width + i;
  const auto first = widen(pair[0]);
  const auto second = widen(pair[half]);
  const auto c = widen(cosine[angle]);
  const auto s = widen(sine[angle]);
  pair[0] = Rounding<T>::of(rounded<T>(first * c) - rounded<T>(second * s));
  pair[half] = Rounding<T>::of(rounded<T>(second * c) + rounded<T>(first * s));
}

}  // namespace kernel

#define STEP_KERNELS(suffix, T)                                                                                        \
  extern "C" __global__ void __launch_bounds__(256) attend_##suffix(                                                   \
      const T* query, T* context, const T* keys, const T* values, const long long* row, const long long* prefix,       \
      const long long* own, const long long* position, const T* bias, int columns, int tokens, int heads, int shared,  \
      int slots, int width, long long row_stride, long long token_stride, double scale) {                              \
    kernel::attend<T>(query, context, {keys, values, row, prefix, own, position, bias, columns, shared, slots, width}, \
                      tokens, heads, row_stride, token_stride, scale);                                                 \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      write_slots_##suffix(T* key_cache, T* value_cache, const T* key, const T* value, const long long* row,           \
                           const long long* slot, long long numbers, int tokens, int shared, int slots, int width,     \
                           long long key_row, long long key_token, long long value_row, long long value_token) {       \
    kernel::write_slots<T>(key_cache, value_cache, key, value, row, slot, numbers, tokens, shared, slots, width,       \
                           key_row, key_token, value_row, value_token);                                                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      rotate_##suffix(T* x, const T* cosine, const T* sine, const long long* position, long long pairs, int tokens,    \
                      int heads, int width, int half, long long row_stride, long long token_stride) {                  \
    kernel::rotate<T>(x, cosine, sine, position, pairs, tokens, heads, width, half, row_stride, token_stride);         \
  }

STEP_KERNELS(fp32, float)
STEP_KERNELS(fp64, double)
STEP_KERNELS(bf16, kernel::BFloat16)
STEP_KERNELS(fp16, kernel::Half)
