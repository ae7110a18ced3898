// Softmax of rows and its gradient, for attention in training; rows of bf16 as fp32. Vector code.
#pragma once

#include <cstdint>

namespace draftsmith::model {

// Replaces each row of scores [rows,columns] by its softmax. A row with NaN, or without a finite number, becomes NaN.
void softmax_rows(float* scores, int64_t rows, int64_t columns);

// Replaces gradients of softmax rows by those of their scores: g = p (g - sum(p g)). Both [rows,columns].
void softmax_rows_backward(const float* probabilities, float* gradients, int64_t rows, int64_t columns);

// Writes bf16 words [rows,columns], whose rows are `stride` apart, as fp32 without gaps.
void widen_rows(const uint16_t* from, int64_t stride, float* to, int64_t rows, int64_t columns);

// Writes fp32 numbers without gaps as bf16 words [rows,columns], whose rows are `stride` apart; rounds to nearest even.
void narrow_rows(const float* from, uint16_t* to, int64_t stride, int64_t rows, int64_t columns);

}  // namespace draftsmith::model
