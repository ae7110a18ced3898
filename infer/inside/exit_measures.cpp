#include "infer/inside/exit_measures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <ATen/Dispatch.h>

#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

// Returns whether a loop over rows measures: on the CPU it is faster than tensor operations.
bool has_row_kernels(const at::Tensor& values) {
  return values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble);
}

std::vector<double> on_host(const at::Tensor& values) {
  const at::Tensor host = values.to(at::kCPU, at::kDouble).contiguous();
  const double* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

template <class T>
double cosine(const T* a, const T* b, int64_t count) {
  double product = 0;
  double a_squared = 0;
  double b_squared = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    product += x * y;
    a_squared += x * x;
    b_squared += y * y;
  }
  return std::clamp(product / (std::sqrt(a_squared) * std::sqrt(b_squared)), -1.0, 1.0);
}

template <class T>
double margin(const T* logits, int64_t count) {
  std::array<int64_t, 2> best{};
  const int64_t found = row_top(logits, count, 2, best.data());
  const SoftmaxSums sums = row_softmax_sums(logits, count);
  if (found == 0 || !std::isfinite(sums.total)) return std::numeric_limits<double>::quiet_NaN();
  const double below = found == 1 ? 0.0 : std::exp(static_cast<double>(logits[best[1]]) - sums.highest);
  return (1 - below) / sums.total;
}

}  // namespace

std::vector<double> cosine_similarities(const at::Tensor& a, const at::Tensor& b) {
  if (!has_row_kernels(a)) {
    const at::Tensor x = promoted(a).flatten(1);
    const at::Tensor y = promoted(b).flatten(1);
    return on_host(((x * y).sum(1) / (x.norm(2, 1) * y.norm(2, 1))).clamp(-1, 1));
  }
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  const int64_t rows = x.size(0);
  const int64_t width = rows == 0 ? 0 : x.numel() / rows;
  std::vector<double> similarities;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cosine similarities", [&] {
    for (int64_t b_row = 0; b_row < rows; ++b_row) {
      const int64_t first = b_row * width;
      similarities.push_back(cosine(x.const_data_ptr<scalar_t>() + first, y.const_data_ptr<scalar_t>() + first, width));
    }
  });
  return similarities;
}

std::vector<double> top_two_margins(const at::Tensor& logits) {
  if (!has_row_kernels(logits)) {
    const at::Tensor best = std::get<0>(promoted(logits).softmax(1).topk(2, 1));
    return on_host(best.select(1, 0) - best.select(1, 1));
  }
  const at::Tensor scores = logits.contiguous();
  const int64_t width = scores.size(1);
  std::vector<double> margins;
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "top two margins", [&] {
    for (int64_t row = 0; row < scores.size(0); ++row) {
      margins.push_back(margin(scores.const_data_ptr<scalar_t>() + row * width, width));
    }
  });
  return margins;
}

}  // namespace draftsmith::infer
