#include "model/layers/embedding.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace draftsmith::model {
namespace {

// Columns of a thread's share, at least: four lines of a cache.
constexpr int64_t kColumns = 64;

// Adds rows [N,D] to those of `sums` [V,D] that ids [N] name. Each sum is taken in the order of the ids, whatever the
// number of threads.
void add_rows(const at::Tensor& ids, const at::Tensor& rows, at::Tensor& sums) {
  const auto* id = ids.const_data_ptr<int64_t>();
  const auto* from = rows.const_data_ptr<float>();
  auto* to = sums.mutable_data_ptr<float>();
  const int64_t width = sums.size(1);
  at::parallel_for(0, width, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < ids.numel(); ++n) {
      const float* row = from + n * width;
      float* sum = to + id[n] * width;
      for (int64_t i = begin; i < end; ++i) sum[i] += row[i];
    }
  });
}

class Embedded : public torch::autograd::Function<Embedded> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& table, const at::Tensor& ids) {
    context->saved_data["table"] = table;
    context->saved_data["ids"] = ids;
    return at::embedding(table, ids);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor table = context->saved_data["table"].toTensor();
    at::Tensor& sums = table.mutable_grad();
    if (!sums.defined()) sums = at::zeros(table.sizes(), table.options().requires_grad(false));
    add_rows(context->saved_data["ids"].toTensor().contiguous(), gradients[0].to(at::kFloat).contiguous(), sums);
    return {at::Tensor(), at::Tensor()};
  }
};

bool by_rows(const at::Tensor& table) {
  const bool learns = at::GradMode::is_enabled() && table.requires_grad() && table.is_leaf();
  if (!learns || !table.is_cpu() || table.scalar_type() != at::kFloat) return false;
  const at::Tensor& sums = table.grad();
  return !sums.defined() || (sums.is_contiguous() && sums.scalar_type() == at::kFloat && !sums.requires_grad());
}

}  // namespace

at::Tensor embedded(const at::Tensor& table, const at::Tensor& ids) {
  return by_rows(table) ? Embedded::apply(table, ids) : at::embedding(table, ids);
}

}  // namespace draftsmith::model
