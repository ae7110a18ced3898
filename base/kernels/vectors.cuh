// Vectors of 16 bytes, the widest loads of a thread.
#pragma once

#include "base/kernels/numbers.cuh"

namespace kernel {

struct alignas(16) Words {
  Word words[4];
};

// Loads 16 bytes from an address that is a multiple of 16.
template <class T>
__device__ inline Words load_words(const T* from) {
  return *reinterpret_cast<const Words*>(from);
}

template <class T>
__device__ inline bool is_aligned(const T* address) {
  return reinterpret_cast<unsigned long long>(address) % sizeof(Words) == 0;
}

// Returns a * b + c, rounded once.
__device__ inline float multiply_add(float a, float b, float c) {
  return fmaf(a, b, c);
}

// Numbers of type T in a vector: kCount of them, which unpack() widens.
template <class T>
struct Vector;

template <>
struct Vector<float> {
  static constexpr int kCount = 4;
  __device__ static void unpack(const Words& from, float* to) {
    KERNEL_UNROLL(4)
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(from.words[i]);
  }
};

template <>
struct Vector<BFloat16> {
  static constexpr int kCount = 8;
  __device__ static void unpack(const Words& from, float* to) {
    KERNEL_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(from.words[i] << 16);
      to[2 * i + 1] = __uint_as_float(from.words[i] & 0xffff0000u);
    }
  }
};

template <>
struct Vector<Half> {
  static constexpr int kCount = 8;
  __device__ static void unpack(const Words& from, float* to) {
    KERNEL_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = widen(Half{static_cast<unsigned short>(from.words[i])});
      to[2 * i + 1] = widen(Half{static_cast<unsigned short>(from.words[i] >> 16)});
    }
  }
};

}  // namespace kernel
