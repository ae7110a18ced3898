// The linear layer y = f(x W^T + b): plain at::linear for training and rare dtypes,
// packed weights of fp32, bf16 and int8 for decoding on CPUs (model/cpu; at::linear's generic GEMV reads weights at 0.4
// times the speed). Few rows on other devices are one launch (model/layers/linear_rows.h).
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "base/aten.h"
#include "model/cpu/packed_weights.h"
#include "model/layers/linear_rows.h"
#include "model/layers/norm.h"
#include "model/layers/post_op.h"

namespace draftsmith::model {

class Linear {
 public:
  Linear() = default;
  // weight [out,in], bias [out] or undefined; shared with the caller, not copied.
  explicit Linear(at::Tensor weight, at::Tensor bias = {}) : weight_(std::move(weight)), bias_(std::move(bias)) {}

  // Returns the outputs: x [...,in] -> [...,out]. The input is converted to the weight's dtype if it differs (T5's fp32
  // `wo` in fp16).
  at::Tensor operator()(const at::Tensor& x) const;
  // Returns residual + linear(x), both [...,out]; one pass over memory if packed, or of few rows on a device.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x) const;
  // Returns (*this)(norm(x)); one launch for few rows on a device and RMS norm.
  at::Tensor after(const NormLayer& norm, const at::Tensor& x) const;
  // Returns f(linear(norm(x))) * up(norm(x)), likewise, for x of which finishes() is true; f is the post-operation.
  at::Tensor gated(const NormLayer& norm, const Linear& up, const at::Tensor& x) const;
  // Returns whether x is few rows on a device, to which the post-operation is applied in the same launch.
  bool finishes(const at::Tensor& x) const { return then_ != PostOp::kNone && few_rows(x); }
  // Returns whether the operators of model/layers/linear_rows.h compute x, one launch each.
  bool few_rows(const at::Tensor& x) const;

  // Packs the weight on CPUs: fp32, and what the arena says. Others compute as before. operator() applies `then` only
  // if fuses() says so afterwards. Without its plain weight (WeightArena) the layer has no gradients
  // (std::logic_error).
  void pack(WeightArena& arena, PostOp then = PostOp::kNone);
  // Drops the plain weight and keeps its shape.
  void drop_plain();
  bool packed() const { return own_ != nullptr; }
  // Returns whether operator() applies the post-operation itself for this input.
  bool fuses(const at::Tensor& x) const { return then_ != PostOp::kNone && (use_packed(x) || few_rows(x)); }
  // Packed weights have no gradient: a pass that records one through x or the weight uses the plain weight.
  bool use_packed(const at::Tensor& x) const {
    return packed() && !(at::GradMode::is_enabled() && (weight_.requires_grad() || x.requires_grad()));
  }

  // Returns the weights packed for steps on CPUs; null: they are not.
  const PackedWeights* own_weights() const { return own_.get(); }
  // Returns the weight: a tensor without data (its device is meta) if only the packed weight was kept.
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }

 private:
  const at::Tensor& plain_weight() const;
  std::pair<at::Tensor, InputNorm> joined_norm(const NormLayer& norm, const at::Tensor& x) const;

  at::Tensor weight_;
  at::Tensor bias_;
  std::shared_ptr<const PackedWeights> own_;
  PostOp then_ = PostOp::kNone;
};

// ---- Layers that read one input
// In training one operator computes all of them where one takes them.

// Returns each layer's outputs of x [...,n].
std::vector<at::Tensor> joint_linear(const at::Tensor& x, const std::vector<const Linear*>& layers);

// Returns ReLU of the layer's outputs of x, which the layer does not apply itself.
at::Tensor linear_relu(const at::Tensor& x, const Linear& layer);

}  // namespace draftsmith::model
