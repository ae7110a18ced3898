#include "base/device_kernels.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/kernel_loader.h"
#include "base/logging.h"

namespace draftsmith {
namespace {

struct Execution {
  std::atomic<int64_t> kernel_launches = 0;
  std::atomic<int64_t> recordings = 0;
  std::atomic<int64_t> nodes = 0;
  std::atomic<int64_t> replays = 0;
  std::mutex mutex;
  std::vector<std::string> fallbacks;
  std::atomic<bool> wants_kernels = !switched_off("DRAFTSMITH_KERNELS");
  std::atomic<bool> wants_recordings = !switched_off("DRAFTSMITH_GRAPHS");
};

Execution& execution() {
  static Execution one;
  return one;
}

}  // namespace

DeviceExecution device_execution() {
  Execution& all = execution();
  const std::scoped_lock lock(all.mutex);
  return {all.kernel_launches, all.recordings, all.nodes, all.replays, all.fallbacks};
}

nlohmann::ordered_json execution_json(const DeviceExecution& execution) {
  return {{"own_kernels", execution.kernel_launches > 0},
          {"recorded", execution.replays > 0},
          {"warnings", execution.fallbacks}};
}

void count_recording(int64_t nodes) {
  ++execution().recordings;
  execution().nodes = nodes;
}

void count_replay() {
  ++execution().replays;
}

void report_fallback(const std::string& what, const std::string& reason) {
  const char* strict = std::getenv("DRAFTSMITH_STRICT_DEVICE");
  if (strict != nullptr && std::string_view(strict) == "1") {
    throw RunError({"DRAFTSMITH_STRICT_DEVICE", "a device would fall back to a slower way", "", what + ": " + reason,
                    "unset DRAFTSMITH_STRICT_DEVICE to go on"});
  }
  Execution& all = execution();
  const std::string text = what + ": " + reason;
  {
    const std::scoped_lock lock(all.mutex);
    if (std::ranges::find(all.fallbacks, text) != all.fallbacks.end()) return;
    all.fallbacks.push_back(text);
  }
  log_warning("{}", text);
}

bool wants_own_kernels() {
  return execution().wants_kernels;
}

bool wants_recordings() {
  return execution().wants_recordings;
}

void want_own_kernels(bool on) {
  execution().wants_kernels = on;
}

void want_recordings(bool on) {
  execution().wants_recordings = on;
}

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
  const char* const suffix = type == c10::kFloat      ? "_fp32"
                             : type == c10::kBFloat16 ? "_bf16"
                             : type == c10::kHalf     ? "_fp16"
                                                      : nullptr;
  return suffix != nullptr ? find(device, name + suffix) : nullptr;
}

const void* DeviceKernels::load(c10::Device device, const std::string& kernel) {
  std::string reason;
  try {
    const c10::DeviceGuard guard(device);
    static const auto tools = std::make_shared<KernelTools>(cuda_runtime());  // tried again after an error
    if (!loader_) loader_ = std::make_unique<KernelLoader>(source_, tools);
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
  ++execution().kernel_launches;
}

// Launches take the loader's lock only where kernels may begin early.
bool DeviceKernels::launches_early(c10::Device device) const {
  if (!loader_->may_launch_early()) return false;
  const std::scoped_lock lock(mutex_);
  return loader_->launches_early(device.index());
}

}  // namespace draftsmith
