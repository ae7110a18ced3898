#include "base/random_tensors.h"

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/aten.h"
#include "base/dropout_kernel.h"
#include "base/random.h"

namespace draftsmith {

namespace dropout_detail {

namespace {

// Computes the high and low words of a 32x32-bit product. int64 arithmetic wraps, so all 64 bits are right.
std::array<at::Tensor, 2> product_words(const at::Tensor& x, int64_t factor) {
  const at::Tensor product = x * factor;
  return {product.bitwise_right_shift(32).bitwise_and_(0xffffffff), product.bitwise_and(0xffffffff)};
}

}  // namespace

at::Tensor decision_bits(int64_t elements, const DropoutKey& key, at::Device device) {
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  at::Tensor a = at::arange(groups * kLanes, at::TensorOptions(at::kLong).device(device));
  at::Tensor b = at::full_like(a, static_cast<int64_t>(key.site));
  at::Tensor c = at::full_like(a, static_cast<int64_t>(key.step & 0xffffffff));
  at::Tensor d = at::full_like(a, static_cast<int64_t>(key.step >> 32));
  auto key0 = static_cast<uint32_t>(key.seed);
  auto key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto [high0, low0] = product_words(a, 0xd2511f53);
    const auto [high1, low1] = product_words(c, 0xcd9e8d57);
    a = high1.bitwise_xor(b).bitwise_xor_(static_cast<int64_t>(key0));
    c = high0.bitwise_xor(d).bitwise_xor_(static_cast<int64_t>(key1));
    b = low1;
    d = low0;
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  const at::Tensor words = at::stack({a, b, c, d}).view({4, groups, kLanes}).transpose(0, 1);  // [groups,4,16]
  const at::Tensor halves = at::stack({words.bitwise_and(0xffff), words.bitwise_right_shift(16)}, 1);
  return halves.reshape({groups * kGroup}).narrow(0, 0, elements);  // from [groups,2,4,16]
}

}  // namespace dropout_detail

namespace {

using namespace dropout_detail;

// Fewest groups for a thread: 32,768 elements, about 20 microseconds.
constexpr int64_t kGrain = 256;

void check(double probability, at::ScalarType dtype, int64_t elements) {
  if (!(probability >= 0 && probability < 1)) throw std::logic_error("dropout: the probability must be in [0, 1)");
  const bool known = dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
  if (!known) throw std::logic_error("dropout: the dtype must be fp32, fp64, bf16 or fp16");
  // One key has 2^32 blocks of 8 elements.
  if (elements > int64_t{8} << 32) throw std::logic_error("dropout: the tensor is too large for one key");
}

// Applies dropout on the CPU to contiguous tensors.
void apply_on_cpu(const at::Tensor& in, at::Tensor& out, uint32_t threshold, const DropoutKey& key) {
  const int64_t elements = out.numel();
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "dropout", [&] {
    const scalar_t* from = in.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, groups, kGrain, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kGroup;
      const int64_t count = std::min(end * kGroup, elements) - first;
      apply_dropout(from + first, to + first, count, begin, threshold, key);
    });
  });
}

// Returns in * mask.
at::Tensor applied(const at::Tensor& in, uint32_t threshold, const DropoutKey& key) {
  at::Tensor out = at::empty(in.sizes(), in.options().memory_format(at::MemoryFormat::Contiguous));
  if (out.numel() == 0) return out;
  if (out.is_cpu()) {
    apply_on_cpu(in.contiguous(), out, threshold, key);
    return out;
  }
  const at::Tensor kept = decision_bits(out.numel(), key, out.device()).ge(static_cast<int64_t>(threshold));
  return at::where(kept.view(in.sizes()), in * scale_of(threshold), at::zeros({}, in.options()));
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
    return applied(x, static_cast<uint32_t>(key[0]), dropout_key);
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key) {
  check(probability, x.scalar_type(), x.numel());
  if (probability == 0) return x;
  return DropoutFunction::apply(x, threshold_of(probability), static_cast<int64_t>(key.seed),
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
