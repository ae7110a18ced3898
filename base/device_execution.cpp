#include "base/device_execution.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
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

// Returns whether fallbacks are errors.
bool strict_device() {
  const char* value = std::getenv("DRAFTSMITH_STRICT_DEVICE");
  return value != nullptr && std::string_view(value) == "1";
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

void count_kernel_launch() {
  ++execution().kernel_launches;
}

void count_recording(int64_t nodes) {
  ++execution().recordings;
  execution().nodes = nodes;
}

void count_replay() {
  ++execution().replays;
}

void report_fallback(const std::string& what, const std::string& reason) {
  if (strict_device()) {
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

}  // namespace draftsmith
