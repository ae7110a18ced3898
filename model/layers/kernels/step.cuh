// Cache writes and rotation of a decoding step, for step.cu and step_program.cu: a number or a pair a call.
#pragma once

#include "base/kernels/numbers.cuh"

namespace kernel {

// Writes number `index` of keys and values [B,L,kv*width], rows and tokens strided, to slot[b,j] of row[b].
template <class T>
__device__ void write_slots(T* key_cache, T* value_cache, const T* key, const T* value, const Int64* row,
                            const Int64* slot, Int64 index, int tokens, int shared, int slots, int width, Int64 key_row,
                            Int64 key_token, Int64 value_row, Int64 value_token) {
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

// Rotates pair `index` of heads of x [B,L,h*width], rows and tokens strided, in place by the table's rows. Products and
// sums are rounded to T, as tensor operations do.
template <class T>
__device__ void rotate(T* x, const T* cosine, const T* sine, const Int64* position, Int64 index, int tokens, int heads,
                       int width, int half, Int64 row_stride, Int64 token_stride) {
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
