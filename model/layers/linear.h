// Layers of one matrix or none, and the sublayer made of them: embeddings, norms, linear layers, feed-forward.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "base/aten.h"
#include "model/cpu/packed_weights.h"
#include "model/cpu/row_operations.h"
#include "model/layers/dropout.h"
#include "model/layers/linear_rows.h"
#include "model/layers/parameter_source.h"
#include "model/layers/post_op.h"
#include "model/layers/rms_norm.h"

namespace draftsmith::model {

// Rows of an embedding table, with gradients by rows: those of a batch's ids, not of the whole vocabulary.

// Returns the rows of `table` [V,D] that `ids` name, in the table's type. ids int64 [...] -> [..., D]. Where a leaf of
// fp32 on the CPU learns, the backward pass adds its rows to the table's gradient in place: no other gradient of the
// size of the table is made, but torch::autograd::grad() does not see it.
at::Tensor embedded(const at::Tensor& table, const at::Tensor& ids);

// Normalisation of hidden states: RMS norm (T5, Llama; Zhang & Sennrich 2019, y = w x / sqrt(mean(x^2) + eps)) and
// layer norm. Statistics of half types are taken in fp32; so is 1 + w, where a norm multiplies by it.

class NormLayer {
 public:
  NormLayer() = default;
  // weight [D]; bias [D] for Norm::kLayer, else undefined.
  NormLayer(Norm kind, double epsilon, at::Tensor weight, at::Tensor bias)
      : kind_(kind), epsilon_(epsilon), weight_(std::move(weight)), bias_(std::move(bias)) {}

  // x [...,D] -> [...,D], in the weight's dtype.
  at::Tensor operator()(const at::Tensor& x) const {
    if (kind_ == Norm::kRms) return rms_norm(x, weight_, epsilon_);
    if (kind_ == Norm::kRmsPlusOne) {
      const at::ScalarType wide = c10::promoteTypes(weight_.scalar_type(), at::kFloat);
      return rms_norm(x, weight_.to(wide) + 1.0, epsilon_).to(weight_.scalar_type());
    }
    return at::layer_norm(x.to(weight_.scalar_type()), {x.size(-1)}, weight_, bias_, epsilon_);
  }
  // Returns the numbers of an RMS norm times w; an undefined weight for others.
  InputNorm rms() const { return kind_ == Norm::kRms ? InputNorm{weight_, epsilon_} : InputNorm(); }

  // Returns the norm of fp32 rows on a CPU, a view; without weights if it is of other numbers.
  RowNorm row_norm() const {
    const auto takes = [](const at::Tensor& x) {
      return x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous();
    };
    if (!takes(weight_) || (bias_.defined() && !takes(bias_))) return {};
    return {weight_.const_data_ptr<float>(), bias_.defined() ? bias_.const_data_ptr<float>() : nullptr, epsilon_,
            kind_ == Norm::kLayer, kind_ == Norm::kRmsPlusOne};
  }

  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }
  bool defined() const { return weight_.defined(); }

 private:
  Norm kind_ = Norm::kRms;
  double epsilon_ = 1e-6;
  at::Tensor weight_;
  at::Tensor bias_;
};

// The linear layer y = f(x W^T + b): plain at::linear for training and rare dtypes,
// packed weights of fp32, bf16 and int8 for decoding on CPUs (model/cpu; at::linear's generic GEMV reads weights at 0.4
// times the speed). Few rows on other devices are one launch (model/layers/linear_rows.h).

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

  // Packs the weight, if there is one, on CPUs: fp32, and what the arena says. Others compute as before. operator()
  // applies `then` only if fuses() says so afterwards. Without its plain weight (WeightArena) the layer has no
  // gradients (std::logic_error). `parts`: what makes up a weight that has no data itself, one behind the other.
  void pack(WeightArena& arena, PostOp then = PostOp::kNone, at::TensorList parts = {});
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

// Layers that read one input: in training one operator computes all of them where one takes them.

// Returns each layer's outputs of x [...,n].
std::vector<at::Tensor> joint_linear(const at::Tensor& x, const std::vector<const Linear*>& layers);

// Returns ReLU of the layer's outputs of x, which the layer does not apply itself.
at::Tensor linear_relu(const at::Tensor& x, const Linear& layer);

// The place of the norm of a sublayer f, and the factor on what it adds: x + s f(norm(x)), norm(x + s f(x)),
// x + s norm(f(x)) or x + s norm2(f(norm1(x))).
struct Residual {
  NormPlace place = NormPlace::kBefore;
  double scale = 1.0;  // s

  bool norms_input() const { return model::norms_input(place); }
};

// Returns what a sublayer that ends with `last` makes of the residual; `inner` is that layer's input, `norm` the norm
// behind it, if any. [...,D]
at::Tensor sublayer_sum(const Residual& form, const NormLayer& norm, const at::Tensor& residual, const Linear& last,
                        const at::Tensor& inner, Dropout& dropout);

// The feed-forward sublayer x + dropout(W_down f(W_up norm(x))), or with a gate f(W_gate n) * (W_up n) (Shazeer 2020,
// GLU variants), and the other forms of Residual. T5 has another dropout before W_down.

struct FeedForwardWeights {
  Residual residual;
  NormLayer norm;
  Linear gate;  // undefined unless config.gated
  Linear up;
  Linear down;
  NormLayer output_norm = {};  // NormPlace::kAround: the norm behind
};

class FeedForward {
 public:
  FeedForward(Activation activation, bool inner_dropout, FeedForwardWeights weights)
      : activation_(activation),
        inner_dropout_(inner_dropout),
        residual_(weights.residual),
        norm_(std::move(weights.norm)),
        output_norm_(weights.output_norm.defined() ? std::move(weights.output_norm) : norm_),
        gate_(std::move(weights.gate)),
        up_(std::move(weights.up)),
        down_(std::move(weights.down)) {}

  const Residual& residual() const { return residual_; }
  // Returns residual + dropout(feed_forward(norm(x))), both [...,D], or another form of the sum. The residual is x
  // unless sublayers are parallel.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x, Dropout& dropout) const;
  // Returns what steps on CPUs read; nothing if it is not packed for them.
  std::optional<FeedForwardWeightsView> packed_view() const;
  void pack(WeightArena& arena);

 private:
  // Returns f(linear(x)), with the activation fused if the layer supports it.
  at::Tensor activated(const Linear& linear, const at::Tensor& x) const;
  // Returns the inputs of W_down for the sublayer's input x, before its norm: [...,D] -> [...,F].
  at::Tensor inner_of(const at::Tensor& x) const;

  Activation activation_;
  bool inner_dropout_;
  Residual residual_;
  NormLayer norm_;
  NormLayer output_norm_;  // behind the sublayer; the same unless there are two
  Linear gate_;
  Linear up_;
  Linear down_;
};

}  // namespace draftsmith::model
