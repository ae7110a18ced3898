#include "model/transformer/score_bias.h"

#include <ATen/autocast_mode.h>

namespace draftsmith::model {
namespace {

// Returns the numbers with rows [S] whose starts are multiples of 16 numbers apart, as fused attention reads them: it
// would copy others in every layer, or not take them.
at::Tensor with_aligned_rows(const at::Tensor& additive) {
  constexpr int64_t kAlignment = 16;
  const int64_t keys = additive.size(3);
  const int64_t missing = (kAlignment - keys % kAlignment) % kAlignment;
  return missing == 0 ? additive.contiguous() : at::constant_pad_nd(additive, {0, missing}).narrow(3, 0, keys);
}

}  // namespace

ScoreBias score_bias(const at::Tensor& additive, at::IntArrayRef shape, bool fused) {
  ScoreBias bias;
  bias.fused = fused;
  if (!additive.defined()) return bias;
  const auto formed = [&](const at::Tensor& numbers) {
    return fused ? with_aligned_rows(numbers)
                 : numbers.expand(shape).reshape({shape[0] * shape[1], shape[2], shape[3]});
  };
  const at::DeviceType device = additive.device().type();
  if (additive.is_cpu() || !at::autocast::is_autocast_enabled(device)) {
    bias.additive = formed(additive);
  } else {
    bias.additive = additive;
    bias.rounded = formed(additive.detach().to(at::autocast::get_autocast_dtype(device)));
  }
  return bias;
}

}  // namespace draftsmith::model
