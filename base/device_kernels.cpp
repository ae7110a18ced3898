#include "base/device_kernels.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/device_execution.h"
#include "base/error.h"
#include "base/kernel_loader.h"

namespace draftsmith {

namespace {

// Returns the compiler, the cache and CUDA's functions, which are found once. Throws RunError each time if they are
// not there.
std::shared_ptr<KernelTools> tools_of_process() {
  static const auto tools = std::make_shared<KernelTools>(cuda_runtime());
  return tools;
}

}  // namespace

DeviceKernels::DeviceKernels(KernelSource source) : source_(std::move(source)) {}

DeviceKernels::~DeviceKernels() = default;

const void* DeviceKernels::find(c10::Device device, const std::string& kernel) {
  if (!device.is_cuda() || !wants_own_kernels()) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (failed_) return nullptr;  // all or none: rows of some batches would get other sums than those of others
  const void*& known = kernels_[{device.index(), kernel}];
  if (known == nullptr) known = load(device, kernel);
  return known;
}

const void* DeviceKernels::find(c10::Device device, const std::string& name, c10::ScalarType type) {
  const bool known = type == c10::kFloat || type == c10::kBFloat16 || type == c10::kHalf;
  return known ? find(device, name + "_" + dtype_name(type)) : nullptr;
}

const void* DeviceKernels::load(c10::Device device, const std::string& kernel) {
  std::string reason;
  try {
    const c10::DeviceGuard guard(device);
    if (!loader_) loader_ = std::make_unique<KernelLoader>(source_, tools_of_process());
    return loader_->kernel(device.index(), kernel);
  } catch (const c10::Error& problem) {
    reason = problem.what_without_backtrace();
  } catch (const std::exception& problem) {
    reason = problem.what();
  }
  report_fallback("LibTorch's operators run in place of own GPU kernels, which is slower", reason);
  failed_ = true;
  return nullptr;
}

void DeviceKernels::launch_with(const void* kernel, c10::Device device, Dim3 grid, Dim3 block, void** arguments) const {
  const c10::DeviceGuard guard(device);
  LaunchAttribute early{.number = LaunchAttribute::kProgrammaticSerialization, .value = 1};
  const bool is_early = launches_early(device);
  const LaunchConfig config{.grid = grid,
                            .block = block,
                            .stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle(),
                            .attributes = is_early ? &early : nullptr,
                            .attribute_count = is_early ? 1U : 0U};
  const CudaRuntime& runtime = loader_->tools().runtime;
  runtime.check(runtime.launch(&config, kernel, arguments),
                fmt::format("a kernel of {} cannot be launched", source_.main.name));
  count_kernel_launch();
}

// Launches take the loader's lock only where kernels may begin early.
bool DeviceKernels::launches_early(c10::Device device) const {
  if (!loader_->may_launch_early()) return false;
  const std::scoped_lock lock(mutex_);
  return loader_->launches_early(device.index());
}

}  // namespace draftsmith
