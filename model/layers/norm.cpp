#include "model/layers/norm.h"

#include "model/layers/rms_norm.h"

namespace draftsmith::model {

RowNorm NormLayer::row_norm() const {
  const auto takes = [](const at::Tensor& x) {
    return x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous();
  };
  if (!takes(weight_) || (bias_.defined() && !takes(bias_))) return {};
  return {weight_.const_data_ptr<float>(), bias_.defined() ? bias_.const_data_ptr<float>() : nullptr, epsilon_,
          kind_ == Norm::kLayer};
}

at::Tensor NormLayer::operator()(const at::Tensor& x) const {
  if (kind_ == Norm::kRms) {
    return rms_norm(x, weight_, epsilon_);
  }
  return at::layer_norm(x.to(weight_.scalar_type()), {x.size(-1)}, weight_, bias_, epsilon_);
}

}  // namespace draftsmith::model
