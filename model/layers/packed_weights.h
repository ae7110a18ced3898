// Weights of a linear layer laid out for decoding on CPUs: y = x W^T + b for the few rows x of a step. Each row's sums
// are taken in one order whatever the number of rows, so that a token's logits do not depend, to the last bit, on the
// tokens and rows that are processed with it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>

#include "base/aten.h"

namespace draftsmith::model {

// Returns uninitialised outputs [...,outputs] of a linear layer for inputs x [...,in].
at::Tensor output_like(const at::Tensor& x, int64_t outputs);

class PackedWeights {
 public:
  // Operation on the sums before they are stored.
  enum class Finish { kNone, kRelu };

  virtual ~PackedWeights() = default;
  // Returns x W^T + b with the finish applied: x [...,in], fp32 -> [...,out].
  at::Tensor multiply(const at::Tensor& x, Finish finish) const;
  // Returns residual [...,out] + x W^T + b.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x) const;

 protected:
  PackedWeights(int64_t inputs, int64_t outputs) : inputs_(inputs), outputs_(outputs) {}
  // Computes the rows of y [rows,out] from x [rows,in]. `residual` [rows,out] is added if it is not null.
  virtual void run(const float* x, const float* residual, int64_t rows, Finish finish, float* y) const = 0;

  int64_t inputs_;
  int64_t outputs_;
};

// Outputs whose weights lie side by side: four vectors of 16 floats.
inline constexpr int64_t kPanel = 64;

// Returns the bias [out] in panels, padded with zeros: fp32 [panels,64]; undefined if `bias` is.
at::Tensor bias_panels(const at::Tensor& bias, int64_t outputs);

// Calls task(begin, end) for ranges of panels: on this thread if all have at most `products` multiplications, which a
// second thread costs, else on several with at least half as many each.
template <class Task>
void for_panels(int64_t panels, int64_t products_of_panel, int64_t products, const Task& task) {
  if (panels * products_of_panel <= products) {
    task(int64_t{0}, panels);
  } else {
    at::parallel_for(0, panels, std::max<int64_t>(1, products / 2 / products_of_panel), task);
  }
}

}  // namespace draftsmith::model
