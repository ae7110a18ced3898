#include "model/layers/packed_weights.h"

#include <vector>

namespace draftsmith::model {

at::Tensor output_like(const at::Tensor& x, int64_t outputs) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = outputs;
  return at::empty(sizes, x.options());
}

at::Tensor PackedWeights::multiply(const at::Tensor& x, Finish finish) const {
  const at::Tensor input = x.contiguous();
  at::Tensor y = output_like(input, outputs_);
  run(input.const_data_ptr<float>(), nullptr, y.numel() / outputs_, finish, y.mutable_data_ptr<float>());
  return y;
}

at::Tensor PackedWeights::add_to(const at::Tensor& residual, const at::Tensor& x) const {
  const at::Tensor input = x.contiguous();
  const at::Tensor added = residual.contiguous();
  at::Tensor y = at::empty_like(added);
  run(input.const_data_ptr<float>(), added.const_data_ptr<float>(), y.numel() / outputs_, Finish::kNone,
      y.mutable_data_ptr<float>());
  return y;
}

at::Tensor bias_panels(const at::Tensor& bias, int64_t outputs) {
  if (!bias.defined()) return {};
  const int64_t panels = (outputs + kPanel - 1) / kPanel;
  at::Tensor padded = at::zeros({panels, kPanel}, at::kFloat);
  padded.view(-1).narrow(0, 0, outputs).copy_(bias.detach());
  return padded;
}

}  // namespace draftsmith::model
