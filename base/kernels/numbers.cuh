// Number types of kernels, which compute in fp32. Made without CUDA's headers: NVRTC needs no include directory, and
// the tests compile the same source for the host.
#pragma once

// KERNEL_UNROLL(n) before a loop lets n rounds be in flight at once. Compilers for the host know no such pragma.
#ifdef __CUDACC_RTC__
#define KERNEL_PRAGMA(text) _Pragma(#text)
#define KERNEL_UNROLL(rounds) KERNEL_PRAGMA(unroll rounds)
#else
#define KERNEL_UNROLL(rounds)
#endif

namespace kernel {

// Waits until the kernels ahead in the stream have written what this one reads, and lets the next one begin.
//
// A kernel that is launched early may begin while the one ahead of it still runs.
// Until this call, which every thread makes, it may read only what no kernel writes: weights.
__device__ inline void wait_for_inputs() {
#ifdef EARLY_LAUNCH
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Asks for 128 bytes that no kernel writes, ahead of wait_for_inputs(). Does nothing in a kernel that is not launched
// early.
__device__ inline void ask_for_line([[maybe_unused]] const void* address) {
#ifdef EARLY_LAUNCH
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

using Int64 = long long;
using Word = unsigned int;
using Float = float;

struct BFloat16 {
  unsigned short bits;
};

struct Half {
  unsigned short bits;
};

__device__ inline float widen(float value) {
  return value;
}

__device__ inline float widen(BFloat16 value) {
  return __uint_as_float(static_cast<Word>(value.bits) << 16);
}

__device__ inline float widen(Half value) {
#ifdef __CUDACC_RTC__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  const Word magnitude = value.bits & 0x7fffu;
  const Word sign = static_cast<Word>(value.bits & 0x8000u) << 16;
  // The product with 2^112 corrects the exponent, also that of subnormal numbers.
  const Word finite = __float_as_uint(__uint_as_float(magnitude << 13) * 5192296858534827628530496329220096.0f);
  return __uint_as_float(sign | (magnitude < 0x7c00u ? finite : 0x7f800000u | magnitude << 13));
#endif
}

// Rounds a number to the nearest of another type, ties to even. Call it as Rounding<To>::of(value).
template <class To>
struct Rounding {
  __device__ static To of(To value) { return value; }
};

template <>
struct Rounding<BFloat16> {
  __device__ static BFloat16 of(float value) {
    const Word bits = __float_as_uint(value);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const Word rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return {static_cast<unsigned short>(is_nan ? 0x7fc0u : rounded)};
  }
};

template <>
struct Rounding<Half> {
  __device__ static Half of(float value) {
    const Word bits = __float_as_uint(value);
    const Word magnitude = bits & 0x7fffffffu;
    // Numbers from 65,520 on round to infinity. Those below 2^-14 are subnormal: multiples of 2^-24, to which the sum
    // with a half rounds them.
    const Word normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    const Word subnormal = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    const Word special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const Word finite = magnitude < 0x38800000u ? subnormal : normal;
    return {static_cast<unsigned short>((bits >> 16 & 0x8000u) | (magnitude < 0x477ff000u ? finite : special))};
  }
};

__device__ inline float infinity() {
  return __uint_as_float(0x7f800000u);
}

}  // namespace kernel
