#include "base/dropout_operator.h"

#include <array>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "base/aten.h"
#include "base/device_kernels.h"
#include "base/dropout_kernel.h"

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

// Computes the product with LibTorch's operators, on any device.
at::Tensor masked_by_operators(const at::Tensor& x, uint32_t threshold, const DropoutKey& key) {
  const at::Tensor kept = decision_bits(x.numel(), key, x.device()).ge(static_cast<int64_t>(threshold));
  return at::where(kept.view(x.sizes()), x * scale_of(threshold), at::zeros({}, x.options()));
}

at::Tensor masked_on_gpu(const at::Tensor& x, uint32_t threshold, const DropoutKey& key) {
  static DeviceKernels kernels(kernel_source(base_kernel_texts(), "base/kernels/dropout.cu", {"--fmad=false"}));
  if (x.numel() == 0) return contiguous_like(x);
  const void* kernel = kernels.find(x.device(), "dropout", x.scalar_type());
  if (kernel == nullptr) return masked_by_operators(x, threshold, key);
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

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("dropout(Tensor x, int threshold, int seed, int step, int site) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("dropout", &operator_of<masked_on_cpu>);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("dropout", &operator_of<masked_on_gpu>);
}

}  // namespace

at::Tensor masked_by_key(const at::Tensor& x, uint32_t threshold, const DropoutKey& key) {
  if (x.is_cpu()) return masked_on_cpu(x, threshold, key);
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("draftsmith::dropout", "")
                                 .typed<at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, int64_t)>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return handle.call(x, static_cast<int64_t>(threshold), static_cast<int64_t>(key.seed), static_cast<int64_t>(key.step),
                     static_cast<int64_t>(key.site));
}

}  // namespace draftsmith
