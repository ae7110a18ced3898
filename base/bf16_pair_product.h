// Products of bf16 matrices by the instruction that adds products of pairs (vdpbf16ps, of AVX-512 BF16), for processors
// without tiles. MKL's are for Intel's tiles: on an EPYC of the fourth generation they take longer than those of fp32.
#pragma once

#include "base/matrix_product.h"

namespace draftsmith {

// Returns whether the processor has the instruction.
bool has_bf16_pairs();

// Computes the product of bits of bf16 numbers, by all threads outside of a parallel region. A number of `out` depends
// on its row of a, its column of b and k alone. Numbers below 2^-126 in size count as 0. Only where has_bf16_pairs().
// Errors: none.
void multiply_bf16_pairs(const MatrixProduct& product, RowsInMemory<const uint16_t> a, RowsInMemory<const uint16_t> b,
                         RowsInMemory<float> out);

}  // namespace draftsmith
