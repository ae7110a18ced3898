// Products of bf16 matrices with results in fp32 on CPUs, for which LibTorch has no operator: MKL's by tiles (AMX), or
// oneDNN's by pairs (AVX-512 BF16), both of LibTorch's library; and the rounding of their operands.
#pragma once

#include <cstdint>

namespace draftsmith {

// Rows in memory, the first of each `stride` numbers after the one before.
template <class T>
struct RowsInMemory {
  T* data;
  int64_t stride;
};

// out [m,n] = a b + (add ? out : 0), in the order of rows.
struct MatrixProduct {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;  // a is stored [k,m], b [n,k]
  bool add = false;
};

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
