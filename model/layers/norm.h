// Normalisation of hidden states: RMS norm (T5, Llama; Zhang & Sennrich 2019, y = w x / sqrt(mean(x^2) + eps)) and
// layer norm. Statistics of half types are taken in fp32.
#pragma once

#include "base/aten.h"
#include "model/cpu/row_operations.h"
#include "model/layers/linear_rows.h"
#include "model/layers/parameter_source.h"
#include "model/layers/rms_norm.h"

namespace draftsmith::model {

class NormLayer {
 public:
  NormLayer() = default;
  // weight [D]; bias [D] for Norm::kLayer, undefined for Norm::kRms.
  NormLayer(Norm kind, double epsilon, at::Tensor weight, at::Tensor bias)
      : kind_(kind), epsilon_(epsilon), weight_(std::move(weight)), bias_(std::move(bias)) {}

  // x [...,D] -> [...,D], in the weight's dtype.
  at::Tensor operator()(const at::Tensor& x) const {
    if (kind_ == Norm::kRms) return rms_norm(x, weight_, epsilon_);
    return at::layer_norm(x.to(weight_.scalar_type()), {x.size(-1)}, weight_, bias_, epsilon_);
  }
  // Returns the numbers of an RMS norm; an undefined weight for layer norm.
  InputNorm rms() const { return kind_ == Norm::kRms ? InputNorm{weight_, epsilon_} : InputNorm(); }

  // Returns the norm of fp32 rows on a CPU, a view; without weights if it is of other numbers.
  RowNorm row_norm() const {
    const auto takes = [](const at::Tensor& x) {
      return x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous();
    };
    if (!takes(weight_) || (bias_.defined() && !takes(bias_))) return {};
    return {weight_.const_data_ptr<float>(), bias_.defined() ? bias_.const_data_ptr<float>() : nullptr, epsilon_,
            kind_ == Norm::kLayer};
  }

  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }

 private:
  Norm kind_ = Norm::kRms;
  double epsilon_ = 1e-6;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace draftsmith::model
