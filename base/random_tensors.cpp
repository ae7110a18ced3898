#include "base/random_tensors.h"

#include <stdexcept>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/aten.h"
#include "base/dropout_kernel.h"
#include "base/dropout_operator.h"
#include "base/random.h"

namespace draftsmith {

namespace {

void check(double probability, at::ScalarType dtype, int64_t elements) {
  if (!(probability >= 0 && probability < 1)) throw std::logic_error("dropout: the probability must be in [0, 1)");
  const bool known = dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
  if (!known) throw std::logic_error("dropout: the dtype must be fp32, fp64, bf16 or fp16");
  // One key has 2^32 blocks of 8 elements.
  if (elements > int64_t{8} << 32) throw std::logic_error("dropout: the tensor is too large for one key");
}

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, int64_t threshold,
                            int64_t seed, int64_t step, int64_t site) {
    context->saved_data["key"] = std::vector<int64_t>{threshold, seed, step, site};
    return run(x, {threshold, seed, step, site});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const std::vector<int64_t> key = context->saved_data["key"].toIntVector();
    return {run(gradients[0], key), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  static at::Tensor run(const at::Tensor& x, const std::vector<int64_t>& key) {
    const DropoutKey dropout_key{static_cast<uint64_t>(key[1]), static_cast<uint64_t>(key[2]),
                                 static_cast<uint32_t>(key[3])};
    return masked_by_key(x, static_cast<uint32_t>(key[0]), dropout_key);
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key) {
  check(probability, x.scalar_type(), x.numel());
  if (probability == 0) return x;
  return DropoutFunction::apply(x, dropout_detail::threshold_of(probability), static_cast<int64_t>(key.seed),
                                static_cast<int64_t>(key.step), static_cast<int64_t>(key.site));
}

at::Tensor normal_tensor(at::IntArrayRef shape, double standard_deviation, uint64_t seed, std::string_view stream,
                         at::TensorOptions options) {
  const CounterRandom random(seed, stream);
  const at::Tensor numbers = at::empty(shape, at::kDouble);
  double* data = numbers.mutable_data_ptr<double>();
  at::parallel_for(0, numbers.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] = standard_deviation * random.normal(static_cast<uint64_t>(i));
  });
  return numbers.to(options);
}

}  // namespace draftsmith
