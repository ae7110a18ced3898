// Work of models on CPUs on rows of numbers, between products: norms, activations and rotations of a decoding step, RMS
// norm with its gradients, softmax with its gradient. A row's results do not depend on other rows.
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

// ---- Rows of a decoding step, in fp32 on the calling thread

// RMS norm w x / sqrt(mean(x^2) + epsilon), or 1 + w in w's place, or layer norm
// w (x - mean) / sqrt(variance + epsilon) + b.
struct RowNorm {
  const float* weight = nullptr;  // [D]
  const float* bias = nullptr;    // [D], of layer norm; null: none
  double epsilon = 1e-6;
  bool centered = false;  // layer norm
  bool plus_one = false;  // 1 + w in w's place; without bias
};

// Writes the norms of rows x [rows,width] to y, which may be x.
void normalize_rows(const RowNorm& norm, const float* x, int64_t rows, int64_t width, float* y);

// Replaces x by f(x), to some ulp of the larger of |x| and 1; its place does not matter. NaN stays NaN.
void activate(PostOp then, float* x, int64_t count);

// Multiplies x by y, number by number.
void multiply_by(float* x, const float* y, int64_t count);

// Rotates heads x [heads,width] of one token by a row of a RotaryTable: cosines and sines [half]. T: float or double.
template <class T>
void rotate_heads(T* x, int64_t heads, int64_t width, const T* cosine, const T* sine, int64_t half);

// ---- RMS norm in fp32 and fp64
// One pass over memory each way, where single operations take six.

// Returns whether these functions take the tensors: non-empty ones of fp32 or fp64 on the CPU, of one dtype.
bool rms_norm_on_cpu_takes(const at::Tensor& x, const at::Tensor& weight);

// RMS norm of rows, and what its gradient needs.
struct RmsNormed {
  at::Tensor y;        // [...,D], in the weight's dtype
  at::Tensor inverse;  // 1/sqrt(mean(x^2) + eps) of each row [rows]; fp32 for half types
};

// Returns y = w x r with r = 1/sqrt(mean(x^2) + eps), and r. x [...,D]
RmsNormed rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon);

struct RmsNormGradients {
  at::Tensor x;       // [...,D]
  at::Tensor weight;  // [D]
};

// Returns dx = r (w g) - x r^3 mean(w g x) and dw, the sum of g x r over all rows. gradient and x [...,D]
RmsNormGradients rms_norm_backward_on_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& inverse);

// Replaces each row of scores [rows,columns] by its softmax. A row with NaN, or without a finite number, becomes NaN.
void softmax_rows(float* scores, int64_t rows, int64_t columns);

// Replaces gradients of softmax rows by those of their scores: g = p (g - sum(p g)). Both [rows,columns].
void softmax_rows_backward(const float* probabilities, float* gradients, int64_t rows, int64_t columns);

// Sets bf16 words to zero where those of a ReLU's output are zero.
void keep_where(const uint16_t* output, uint16_t* words, int64_t count);

// Writes bf16 words [rows,columns], whose rows are `stride` apart, as fp32 without gaps.
void widen_rows(const uint16_t* from, int64_t stride, float* to, int64_t rows, int64_t columns);

// Writes fp32 numbers without gaps as bf16 words [rows,columns], whose rows are `stride` apart; rounds to nearest even.
void narrow_rows(const float* from, uint16_t* to, int64_t stride, int64_t rows, int64_t columns);

}  // namespace draftsmith::model
