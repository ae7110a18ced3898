#include "base/random_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <c10/util/TypeCast.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/aten.h"
#include "base/device_kernels.h"
#include "base/random.h"

namespace draftsmith {

namespace dropout_detail {
namespace {

// Groups drawn at a time. Their words (8 KB) stay in the first-level cache until they are used.
constexpr int64_t kChunk = 32;
using ChunkWords = std::array<uint32_t, static_cast<size_t>(kChunk* kWordsOfGroup)>;

// Computes the first `count` of a group's 128 elements.
template <class T>
void apply_group(const T* in, T* out, int64_t count, const uint32_t* words, uint32_t threshold) {
  // Types of 16 bits are scaled in fp32, in which their product is computed anyway.
  using Factor = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto scale = static_cast<Factor>(scale_of(threshold));
  const auto value = [&](int64_t i, uint32_t bits) {
    // c10::convert: on AArch64, a half is made of __fp16, to which -Wconversion wants an explicit step.
    return c10::convert<T>(bits < threshold ? Factor{0} : static_cast<Factor>(in[i]) * scale);
  };
  const int64_t low = std::min(count, kWordsOfGroup);
  for (int64_t i = 0; i < low; ++i) out[i] = value(i, words[i] & 0xffff);
  for (int64_t i = low; i < count; ++i) out[i] = value(i, words[i - kWordsOfGroup] >> 16);
}

}  // namespace

uint32_t threshold_of(double probability) {
  return static_cast<uint32_t>(std::lround(probability * 65536));
}

template <class T>
void apply_dropout(const T* in, T* out, int64_t count, int64_t first_group, uint32_t threshold, const DropoutKey& key) {
  ChunkWords words;
  for (int64_t done = 0; done < count;) {
    const int64_t groups = std::min(kChunk, (count - done + kGroup - 1) / kGroup);
    draw_groups(first_group + done / kGroup, groups, key, words.data());
    int64_t group = 0;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, at::BFloat16>) {
      using Number = std::conditional_t<std::is_same_v<T, float>, float, uint16_t>;
      static_assert(sizeof(T) == sizeof(Number) && std::is_trivially_copyable_v<T>);
      group = std::min(groups, (count - done) / kGroup);
      apply_groups(reinterpret_cast<const Number*>(in + done), reinterpret_cast<Number*>(out + done), group,
                   words.data(), threshold);
      done += group * kGroup;
    }
    for (; group < groups; ++group, done += kGroup) {
      apply_group(in + done, out + done, std::min(kGroup, count - done), words.data() + group * kWordsOfGroup,
                  threshold);
    }
  }
}

template void apply_dropout(const float*, float*, int64_t, int64_t, uint32_t, const DropoutKey&);
template void apply_dropout(const double*, double*, int64_t, int64_t, uint32_t, const DropoutKey&);
template void apply_dropout(const at::BFloat16*, at::BFloat16*, int64_t, int64_t, uint32_t, const DropoutKey&);
template void apply_dropout(const at::Half*, at::Half*, int64_t, int64_t, uint32_t, const DropoutKey&);

}  // namespace dropout_detail

namespace {

using namespace dropout_detail;

// Fewest groups for a thread: 32,768 elements, about 20 microseconds.
constexpr int64_t kGrain = 256;

at::Tensor contiguous_like(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor masked_on_cpu(const at::Tensor& x, uint32_t threshold, const DropoutKey& key) {
  at::Tensor out = contiguous_like(x);
  const int64_t elements = out.numel();
  if (elements == 0) return out;
  const at::Tensor in = x.contiguous();
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
  return out;
}

// Without own kernels, and of fp64, the CPU masks a copy.
at::Tensor masked_on_gpu(const at::Tensor& x, uint32_t threshold, const DropoutKey& key) {
  static DeviceKernels kernels(kernel_source(base_kernel_texts(), "base/kernels/dropout.cu", {"--fmad=false"}));
  if (x.numel() == 0) return contiguous_like(x);
  const void* kernel = kernels.find(x.device(), "dropout", x.scalar_type());
  if (kernel == nullptr) return masked_on_cpu(x.cpu(), threshold, key).to(x.device());
  const at::Tensor in = x.contiguous();
  at::Tensor out = at::empty_like(in);
  constexpr int64_t kThreads = 256;
  const auto elements = static_cast<long long>(in.numel());
  const int64_t blocks = (elements + kGroup - 1) / kGroup * kLanes;  // of Philox, one a thread
  const Dim3 grid{static_cast<unsigned>((blocks + kThreads - 1) / kThreads)};
  kernels.launch(kernel, in.device(), grid, {kThreads}, in.const_data_ptr(), out.mutable_data_ptr(), elements,
                 static_cast<unsigned>(threshold), scale_of(threshold), static_cast<unsigned long long>(key.seed),
                 static_cast<unsigned long long>(key.step), static_cast<unsigned>(key.site));
  return out;
}

// Operators take signed numbers.
template <at::Tensor compute(const at::Tensor&, uint32_t, const DropoutKey&)>
at::Tensor operator_of(const at::Tensor& x, int64_t threshold, int64_t seed, int64_t step, int64_t site) {
  const DropoutKey key{static_cast<uint64_t>(seed), static_cast<uint64_t>(step), static_cast<uint32_t>(site)};
  return compute(x, static_cast<uint32_t>(threshold), key);
}

}  // namespace

at::Tensor masked_by_key(const at::Tensor& x, uint32_t threshold, const DropoutKey& key) {
  if (x.is_cpu()) return masked_on_cpu(x, threshold, key);
  static const DeviceOperator op("dropout(Tensor x, int threshold, int seed, int step, int site) -> Tensor",
                                 &operator_of<masked_on_cpu>, &operator_of<masked_on_gpu>);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op(x, static_cast<int64_t>(threshold), static_cast<int64_t>(key.seed), static_cast<int64_t>(key.step),
            static_cast<int64_t>(key.site));
}

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
    return operator_of<masked_by_key>(x, threshold, seed, step, site);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const std::vector<int64_t> key = context->saved_data["key"].toIntVector();
    const at::Tensor gradient = operator_of<masked_by_key>(gradients[0], key[0], key[1], key[2], key[3]);
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
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
