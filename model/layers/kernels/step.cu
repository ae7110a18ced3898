// Operators of a cached step, for model/layers/step_operators.h: attention over K/V caches, writes to them, rotation.
//
// Lengths and places of tokens are read on the device, so that recorded launches serve every step. What a query gets
// depends neither on the other rows nor on the number of tokens in the step.
#include "base/kernels/numbers.cuh"
#include "model/layers/kernels/attention.cuh"

namespace kernel {

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
  extern "C" __global__ void __launch_bounds__(256, 2) attend_##suffix(                                                \
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
