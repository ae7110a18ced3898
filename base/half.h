// IEEE binary16 numbers as bits, for code without LibTorch.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace draftsmith {

// Returns the exact value; infinities and NaN stay what they are.
inline float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const int exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal numbers: multiples of 2^-24
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const auto wide = static_cast<uint32_t>(exponent == 31 ? 255 : exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | mantissa << 13);
}

}  // namespace draftsmith
