// Products of bf16 matrices with results in fp32 on CPUs, for which LibTorch has no operator: MKL's, which its library
// holds, by tiles, or our own by pairs; and the rounding of their operands.
#pragma once

#include <cstdint>

#include "base/matrix_product.h"

namespace draftsmith {

// Computes the product, by one thread where a parallel region calls it. a and b are bits of bf16 numbers. Only where
// has_bf16_product(). Errors: none.
void multiply_bf16(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                   RowsInMemory<float> out);

// Returns whether the processor has instructions for products of bf16 that are faster than those of fp32: tiles (AMX),
// and MKL in LibTorch's library, or pairs (AVX-512 BF16).
bool has_bf16_product();

// Returns whether such products use tiles (AMX), which makes them several times as fast as those of fp32.
bool has_bf16_tiles();

// Writes fp32 numbers as bf16, rounded to nearest even, or ReLU of them. Numbers below 2^-126 in size become 0. Only
// where has_bf16_product().
void round_to_bf16(const float* from, uint16_t* to, int64_t count, bool relu = false);

}  // namespace draftsmith
