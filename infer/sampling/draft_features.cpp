#include "infer/sampling/draft_features.h"

#include <cmath>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

// Returns -sum p ln p, where 0 ln 0 = 0: [N,V] -> [N].
at::Tensor entropy_of(const at::Tensor& log_probabilities) {
  const at::Tensor p = log_probabilities.exp();
  return -(p * at::where(p.gt(0), log_probabilities, at::zeros_like(p))).sum(-1);
}

}  // namespace

template <class T>
double router_features(const T* logits, int64_t vocabulary, std::span<float> probabilities, std::span<int64_t> ids) {
  const auto k = static_cast<int64_t>(ids.size());
  const int64_t found = row_top(logits, vocabulary, k, ids.data());
  const EntropySums sums = row_entropy_sums(logits, vocabulary);
  for (int64_t i = 0; i < k; ++i) {
    const auto slot = static_cast<size_t>(i);
    if (i >= found) ids[slot] = -1;
    probabilities[slot] =
        i < found ? static_cast<float>(std::exp(static_cast<double>(logits[ids[slot]]) - sums.highest) / sums.total)
                  : 0.0F;
  }
  return sums.entropy();
}

template double router_features<float>(const float*, int64_t, std::span<float>, std::span<int64_t>);
template double router_features<double>(const double*, int64_t, std::span<float>, std::span<int64_t>);

at::Tensor entropy(const at::Tensor& logits) {
  if (!logits.is_cpu()) return entropy_of(at::log_softmax(logits.to(at::kFloat), -1));
  const at::Tensor rows = promoted(logits).contiguous();
  at::Tensor values = host_empty({rows.size(0)}, at::kDouble);
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "entropy", [&] {
    for (int64_t n = 0; n < rows.size(0); ++n) {
      values.mutable_data_ptr<double>()[n] =
          row_entropy_sums(rows.const_data_ptr<scalar_t>() + n * rows.size(1), rows.size(1)).entropy();
    }
  });
  return values;
}

model::RouterFeatures router_features(const at::Tensor& logits, int64_t k) {
  const at::Tensor log_p = at::log_softmax(logits.to(at::kFloat), -1);
  const auto [values, ids] = log_p.topk(std::min(k, log_p.size(1)), -1);  // [N,k]
  const at::Tensor known = values.gt(-std::numeric_limits<float>::infinity());
  const int64_t missing = k - values.size(1);
  return {entropy_of(log_p), at::constant_pad_nd(at::where(known, values.exp(), 0), {0, missing}),
          at::constant_pad_nd(at::where(known, ids, -1), {0, missing}, -1)};
}

}  // namespace draftsmith::infer
