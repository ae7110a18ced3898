// Operators of a cached step, for model/layers/step_operators.h: attention over K/V caches, writes to them, rotation.
//
// Lengths and places of tokens are read on the device, so that recorded launches serve every step. What a query gets
// depends neither on the other rows nor on the number of tokens in the step.
#include "model/layers/kernels/attention.cuh"
#include "model/layers/kernels/step.cuh"

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
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;                             \
    if (index >= numbers) return;                                                                                      \
    kernel::write_slots<T>(key_cache, value_cache, key, value, row, slot, index, tokens, shared, slots, width,         \
                           key_row, key_token, value_row, value_token);                                                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                    \
      rotate_##suffix(T* x, const T* cosine, const T* sine, const long long* position, long long pairs, int tokens,    \
                      int heads, int width, int half, long long row_stride, long long token_stride) {                  \
    const long long index = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;                             \
    if (index >= pairs) return;                                                                                        \
    kernel::rotate<T>(x, cosine, sine, position, index, tokens, heads, width, half, row_stride, token_stride);         \
  }

STEP_KERNELS(fp32, float)
STEP_KERNELS(fp64, double)
STEP_KERNELS(bf16, kernel::BFloat16)
STEP_KERNELS(fp16, kernel::Half)
