#include "base/device_kernels.h"

#include <set>

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/kernel_loader.h"
#include "base/logging.h"

namespace draftsmith {

namespace {

// Numbers of CUDA's enumeration cudaDeviceAttr.
constexpr int kMultiprocessors = 16;
constexpr int kCooperativeLaunch = 95;

// Returns the compiler, the cache and CUDA's functions, which are found once. Throws RunError each time if they are
// not there.
std::shared_ptr<KernelTools> tools_of_process() {
  static const auto tools = std::make_shared<KernelTools>(cuda_runtime());
  return tools;
}

void warn_once(const std::string& reason) {
  static std::mutex mutex;
  static std::set<std::string> known;
  const std::scoped_lock lock(mutex);
  if (!known.insert(reason).second) return;
  log_warning("LibTorch's operators run in place of own GPU kernels, which is slower: {}", reason);
}

}  // namespace

DeviceKernels::DeviceKernels(KernelSource source) : source_(std::move(source)) {}

DeviceKernels::~DeviceKernels() = default;

const void* DeviceKernels::find(c10::Device device, const std::string& kernel) {
  if (!device.is_cuda()) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (failed_) return nullptr;  // all or none: rows of some batches would get other sums than those of others
  const auto [place, is_new] = kernels_.try_emplace({device.index(), kernel}, nullptr);
  if (is_new && !switched_off("DRAFTSMITH_KERNELS")) place->second = load(device, kernel);
  return place->second;
}

const void* DeviceKernels::find(c10::Device device, const std::string& name, c10::ScalarType type) {
  const bool known = type == c10::kFloat || type == c10::kDouble || type == c10::kBFloat16 || type == c10::kHalf;
  return known ? find(device, name + "_" + dtype_name(type)) : nullptr;
}

const void* DeviceKernels::load(c10::Device device, const std::string& kernel) {
  try {
    const c10::DeviceGuard guard(device);
    if (!loader_) loader_ = std::make_unique<KernelLoader>(source_, tools_of_process());
    return loader_->kernel(device.index(), kernel);
  } catch (const c10::Error& problem) {
    warn_once(problem.what_without_backtrace());
  } catch (const std::exception& problem) {
    warn_once(problem.what());
  }
  failed_ = true;
  return nullptr;
}

unsigned DeviceKernels::processors(c10::Device device) const {
  const CudaRuntime& runtime = loader_->tools().runtime;
  int together = 0;
  int count = 0;
  runtime.check(runtime.get_attribute(&together, kCooperativeLaunch, device.index()), "a device cannot be asked");
  runtime.check(runtime.get_attribute(&count, kMultiprocessors, device.index()), "a device cannot be asked");
  return together != 0 ? static_cast<unsigned>(count) : 0;
}

void DeviceKernels::launch_with(decltype(&CudaRuntime::launch) launcher, const void* kernel, c10::Device device,
                                Dim3 grid, Dim3 block, void** arguments) const {
  const c10::DeviceGuard guard(device);
  void* stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  const CudaRuntime& runtime = loader_->tools().runtime;
  runtime.check((runtime.*launcher)(kernel, grid, block, arguments, 0, stream),
                fmt::format("a kernel of {} cannot be launched", source_.main.name));
}

}  // namespace draftsmith
