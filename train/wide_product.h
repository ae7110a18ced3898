// Products of half-precision matrices that are not rounded to half precision, as logits must not be before a softmax:
// a bf16 step is .06 to .125 where |z| is 8 to 32, which is that share of a probability.
#pragma once

#include "base/aten.h"

namespace draftsmith::train {

// Returns rows W^T in at least fp32; half-precision W is multiplied by rows of its type. rows [C,n], W [V,n] -> [C,V].
at::Tensor wide_product(const at::Tensor& rows, const at::Tensor& matrix);

// Writes rows W^T to `out` [C,V], fp32 and contiguous, or adds it: rows and W of one half-precision type, of which
// multiplies_wide() is true.
void wide_product_into(at::Tensor& out, const at::Tensor& rows, const at::Tensor& matrix, bool add);

// Writes factor x slope^T rows to `out` [V,n], fp32 and contiguous, or adds it: the gradient of W from that of
// rows W^T. slope [C,V] and rows [C,n] are bf16 on a CPU, of which multiplies_wide() is true.
void wide_gradient_into(at::Tensor& out, const at::Tensor& slope, const at::Tensor& rows, double factor, bool add);

// Returns whether matrices of this type are multiplied with a result in fp32 without copies of them: half precision on
// GPUs, and bf16 on CPUs with such instructions.
bool multiplies_wide(const at::Tensor& matrix);

// Returns the type of such products: fp64 for fp64 matrices, else fp32.
at::ScalarType wide_type(at::ScalarType matrix);

}  // namespace draftsmith::train
