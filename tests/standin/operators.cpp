// Registers the stand-in accelerator with LibTorch: its memory, its device guard, and operators. Factories, views and
// copies have functions of their own; all others run on the CPU.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
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
  const bool from_device = self.device().type() == kType;
  const bool to_device = target.device().type() == kType;
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
