// Weights of a linear layer laid out for decoding on CPUs: y = x W^T + b for the few rows x of a step. Each row's sums
// are taken in one order whatever the number of rows, so that a token's logits do not depend, to the last bit, on the
// tokens and rows that are processed with it.
#pragma once

#include <cstdint>

#include "base/aten.h"

namespace draftsmith::model {

// Returns uninitialised outputs [...,outputs] of a linear layer for inputs x [...,in].
at::Tensor output_like(const at::Tensor& x, int64_t outputs);

// Outputs whose weights lie side by side: four vectors of 16 floats.
inline constexpr int64_t kPanel = 64;

// Panels of outputs.
struct PanelRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
};

class PackedWeights {
 public:
  // Operation on the sums before they are stored.
  enum class Finish { kNone, kRelu };

  // Rows of inputs, and where their outputs go.
  struct Rows {
    const float* x;         // [count,in]
    const float* residual;  // [count,out], added; or null
    int64_t count;
    float* y;  // [count,out]; may be `residual`
    // Number of these inputs in the process: what a matrix makes of them may serve later runs of the thread with the
    // same number. 0: none.
    uint64_t number = 0;
  };

  virtual ~PackedWeights() = default;
  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }

  // Returns x W^T + b with the finish applied: x [...,in], fp32 -> [...,out]. On all threads.
  at::Tensor multiply(const at::Tensor& x, Finish finish) const;
  // Returns residual [...,out] + x W^T + b. On all threads.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x) const;
  // Computes the outputs of some panels, on the calling thread alone. Allocates nothing once a thread has processed as
  // many rows of as many inputs.
  virtual void run(PanelRange panels, const Rows& rows, Finish finish) const = 0;

 protected:
  // `products`: multiplications that take about as long as it takes a second thread to begin.
  PackedWeights(int64_t inputs, int64_t outputs, int64_t products)
      : inputs_(inputs), outputs_(outputs), products_(products) {}

  int64_t inputs_;
  int64_t outputs_;

 private:
  void run_all(const Rows& rows, Finish finish) const;

  int64_t products_;
};

// Returns the type of hidden states, caches and all parameters but the weights of linear layers in a model that is
// loaded for decoding in `type`: weights of int8, and on CPUs of bf16, go with fp32.
at::ScalarType number_type(at::ScalarType type, at::Device device);
// Returns whether weights can be packed: a matrix of any float type on the CPU that is not empty.
bool packs_on_cpu(const at::Tensor& weight);
// Returns the bias [out] in panels, padded with zeros: fp32 [panels,64]; undefined if `bias` is.
at::Tensor bias_panels(const at::Tensor& bias, int64_t outputs);

}  // namespace draftsmith::model
