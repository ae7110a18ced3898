// Registers the stand-in accelerator with LibTorch: its memory, its device guard, and operators. Factories, views and
// copies have functions of their own, and so has attention, one launch each way, as a GPU's fused kernels; all others
// run on the CPU. Autocast converts the operators that training calls, as on a GPU.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/SDPBackend.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "base/device_graph.h"
#include "tests/standin/internals.h"
#include "tests/standin/standin.h"

namespace draftsmith::standin {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// One device with one stream, on which everything is done at once; a millisecond lies between any two events.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(getDevice()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return getStream(getDevice()); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(getDevice()); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 1; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { count_wait(); }
  void synchronizeEvent(void*) const override { count_wait(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { count_wait(); }
};

// Large copies of memory that is not pinned wait for the device even when they need not: a GPU's driver stages them.
constexpr size_t kStagedBytes = size_t{64} << 10;

// Memory of the host that copies need not wait for.
struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::malloc(std::max<size_t>(1, bytes));
    return {memory, memory, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  static void release(void* memory) { std::free(memory); }
  static bool holds(const at::Tensor& tensor) { return tensor.storage().data_ptr().get_deleter() == &release; }
};

// Makes the device the accelerator of the process, which autograd asks for streams.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedMemory memory;
    return &memory;
  }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &DeviceMemory::instance(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &DeviceMemory::instance(), kKeys, c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  c10::TensorImpl& tensor = *self.unsafeGetTensorImpl();
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  const size_t before = storage.nbytes();
  tensor.set_sizes_contiguous(size);
  const size_t bytes = static_cast<size_t>(tensor.storage_offset() + tensor.numel()) * tensor.itemsize();
  if (bytes <= before) return self;
  c10::DataPtr larger = DeviceMemory::instance().allocate(bytes);
  if (before > 0) DeviceMemory::instance().copy_data(larger.get(), storage.data(), before);
  storage.set_data_ptr_noswap(std::move(larger));
  storage.set_nbytes(bytes);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  const bool from_device = self.device().type() == kType, to_device = target.device().type() == kType;
  const auto copy = [source = from_device ? readable_view(self) : self,
                     to = to_device ? readable_view(target) : target] { to.copy_(source); };
  if (from_device && to_device) {
    count_launch("copy_");
    record(copy);
  } else {
    const at::Tensor& host = to_device ? self : target;
    count_copy(to_device, !non_blocking || (host.nbytes() > kStagedBytes && !PinnedMemory::holds(host)));
  }
  copy();
  return target;
}

at::Scalar local_scalar(const at::Tensor& self) {
  count_copy(false, true);
  return readable_alias(self).item();
}

// ---- Attention

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

int64_t fused_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                        double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::overrideable);
}

// Half types are widened: a kernel's sums are in fp32.
at::Tensor widened(const at::Tensor& host) {
  return !host.defined() || host.scalar_type() == at::kDouble ? host : host.to(at::kFloat);
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Returns the weights [B,H,T,S] of queries [B,H,T,K] and keys [B,H,S,K], with a bias that broadcasts to them.
at::Tensor attention_weights(const at::Tensor& query, const at::Tensor& key, const at::Tensor& bias, bool causal,
                             double scale) {
  at::Tensor scores = query.matmul(key.transpose(-2, -1)) * scale;
  if (bias.defined()) scores = scores + bias;
  if (causal) {
    const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, at::kBool).triu_(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::softmax(scores, -1);
}

Forward forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const std::optional<at::Tensor>& bias, double /*dropout*/, bool causal, bool /*debug*/,
                std::optional<double> scale) {
  const at::Tensor output = at::empty(query.sizes(), query.options());
  const auto launch = [q = readable_view(query), k = readable_view(key), v = readable_view(value),
                       b = readable_view(bias.value_or(at::Tensor())), out = readable_view(output), causal, scale] {
    out.copy_(attention_weights(widened(q), widened(k), widened(b), causal, scale_of(q, scale)).matmul(widened(v)));
  };
  count_launch("scaled_dot_product_attention");
  record(launch);
  launch();
  const at::Tensor none = at::empty({0}, query.options());
  return {output, none, none, none, query.size(-2), key.size(-2), none, none, none};
}

Gradients backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const at::Tensor& bias, std::array<bool, 4> wanted, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double, bool causal,
                   const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  count_launch("scaled_dot_product_attention_backward");
  const auto wide = [](const at::Tensor& tensor) { return widened(readable_view(tensor)); };
  const at::Tensor q = wide(query), k = wide(key), upstream = wide(gradient);
  const double factor = scale_of(query, scale);
  const at::Tensor weights = attention_weights(q, k, wide(bias), causal, factor);
  const at::Tensor of_weights = upstream.matmul(wide(value).transpose(-2, -1));
  const at::Tensor of_scores = weights * (of_weights - (of_weights * weights).sum(-1, true));
  const auto on_device = [](const at::Tensor& host, const at::Tensor& like) {
    const at::Tensor result = at::empty(like.sizes(), like.options());
    readable_view(result).copy_(host);
    return result;
  };
  return {on_device(of_scores.matmul(k) * factor, query),
          on_device(of_scores.transpose(-2, -1).matmul(q) * factor, key),
          on_device(weights.transpose(-2, -1).matmul(upstream), value),
          wanted[3] ? on_device(of_scores.sum_to_size(bias.sizes()), bias) : at::Tensor()};
}

// ---- Registration

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("resize_", &resize);
  library.impl("_copy_from", &copy_from);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("_scaled_dot_product_fused_attention_overrideable", &forward);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &backward);
  // These would be taken apart here, and are one kernel on a GPU.
  for (const char* name :
       {"native_layer_norm", "native_layer_norm_backward", "_foreach_norm.Scalar", "_foreach_sub_.List"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// A recording plays as a CUDA graph does: one launch.
class RecordedLaunches final : public RecordedWork {
 public:
  RecordedLaunches(std::shared_ptr<MemoryPool> pool, const std::function<void()>& work) : pool_(std::move(pool)) {
    Recording recording(*pool_);
    work();
    launches_ = recording.take();
  }
  int64_t nodes() const override { return std::ssize(launches_); }

 private:
  void replay_now() override {
    count_launch("replay");
    for (const auto& launch : launches_) launch();
  }

  std::shared_ptr<MemoryPool> pool_;
  Recording::Launches launches_;
};

std::unique_ptr<RecordedWork> record_launches(c10::Device, WorkMemory& memory, const std::function<void()>& work) {
  if (!memory) memory = std::make_shared<MemoryPool>();
  return std::make_unique<RecordedLaunches>(std::static_pointer_cast<MemoryPool>(memory), work);
}

}  // namespace

c10::Device device() {
  static const bool known = [] {
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::register_privateuse1_backend("standin");
    c10::SetAllocator(kType, &DeviceMemory::instance());
    set_graph_recorder(kType, &record_launches);
    return true;
  }();
  return {kType, static_cast<c10::DeviceIndex>(known ? 0 : -1)};
}

}  // namespace draftsmith::standin

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &draftsmith::standin::fused_attention)
}  // namespace at::native

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32_set_opt_dtype)
}

}  // namespace
}  // namespace at::autocast
