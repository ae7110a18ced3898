// How work on devices other than the CPU is done: which fast ways are wanted, which ones ran, and why others did not;
// launches of own kernels on LibTorch's devices and streams; and operators draftsmith::NAME of LibTorch's dispatcher,
// each one launch on a GPU: profiles and tests see them by name.
//
// Decoding on a GPU uses own kernels and recorded steps. Where one cannot be used, LibTorch's operators give the same
// numbers more slowly. DRAFTSMITH_STRICT_DEVICE=1 turns each such fallback into an error, so that no test or bench
// measures another way than it names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <nlohmann/json_fwd.hpp>
#include <torch/library.h>

#include "base/cuda_runtime.h"
#include "base/kernel_texts.h"

namespace draftsmith {

// Counts of the process and reasons of fallbacks. Recorded launches of kernels count once, when they are recorded.
struct DeviceExecution {
  int64_t kernel_launches = 0;         // of own kernels
  int64_t recordings = 0;              // of device work (base/device_graph.h)
  int64_t nodes = 0;                   // of the latest recording: launches of kernels, and copies
  int64_t replays = 0;                 // of recordings
  std::vector<std::string> fallbacks;  // each once, in their order
};

// Returns what has run so far. Thread-safe, like all functions here.
DeviceExecution device_execution();

// Returns {"own_kernels": bool, "recorded": bool, "warnings": [text]}, for records of measurements.
nlohmann::ordered_json execution_json(const DeviceExecution& execution);

void count_recording(int64_t nodes);
void count_replay();

// Reports that `what` is done in a slower way because of `reason`. Writes a warning, once for each text. Throws
// RunError instead if DRAFTSMITH_STRICT_DEVICE=1.
void report_fallback(const std::string& what, const std::string& reason);

// Return whether own kernels and recordings are wanted: yes, unless DRAFTSMITH_KERNELS=off, DRAFTSMITH_GRAPHS=off, or
// the last call of the functions below says otherwise.
bool wants_own_kernels();
bool wants_recordings();

// Turn them on or off for the process. Models that have decoded keep their recordings: make new ones.
void want_own_kernels(bool on);
void want_recordings(bool on);

// Recorded device work. It reads and writes the tensors that it was recorded with, wherever their contents come from.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Does the work again, on the current stream, without waiting for it.
  void replay() {
    count_replay();
    replay_now();
  }
  // Returns how many launches of kernels and copies one replay stands for.
  virtual int64_t nodes() const = 0;

 private:
  virtual void replay_now() = 0;
};

// Device memory that recorded works share for what they compute on the way. Works that share it must be replayed one
// after the other, and a replay may overwrite what another one computed unless a tensor of it is still alive. Empty at
// first: a recorder fills it.
using WorkMemory = std::shared_ptr<void>;

// Records the device work of a function, which may neither wait for the device nor copy from or to the host. Throws
// std::exception if it does. Results have no values before the first replay, and recording changes no tensor.
using GraphRecorder =
    std::function<std::unique_ptr<RecordedWork>(c10::Device, WorkMemory& memory, const std::function<void()>& work)>;

class KernelLoader;

// Own kernels of one source. Where they cannot be used, callers compute with LibTorch's operators: no NVRTC, a source
// that does not compile, a LibTorch without CUDA, or DRAFTSMITH_KERNELS=off in the environment. Each reason but the
// last is reported once (report_fallback()).
class DeviceKernels {
 public:
  explicit DeviceKernels(KernelSource source);
  ~DeviceKernels();

  // Returns the handle of a kernel on a CUDA device, or nullptr where it cannot be used. The first call compiles and
  // loads the source: make it before a CUDA graph is captured. Thread-safe.
  const void* find(c10::Device device, const std::string& kernel);
  // Returns the same for the kernel of a dtype, "NAME_bf16"; nullptr for dtypes other than fp32, bf16 and fp16.
  const void* find(c10::Device device, const std::string& name, c10::ScalarType type);

  // Launches what find() returned on the current stream of the device. The arguments must have the exact types of the
  // kernel's parameters; pointers are device memory. Throws RunError if CUDA refuses.
  template <class... Arguments>
  void launch(const void* kernel, c10::Device device, Dim3 grid, Dim3 block, Arguments... arguments) const {
    void* addresses[] = {&arguments...};
    launch_with(kernel, device, grid, block, addresses);
  }

 private:
  void launch_with(const void* kernel, c10::Device device, Dim3 grid, Dim3 block, void** arguments) const;
  const void* load(c10::Device device, const std::string& kernel);
  bool launches_early(c10::Device device) const;

  KernelSource source_;
  mutable std::mutex mutex_;
  std::unique_ptr<KernelLoader> loader_;
  bool failed_ = false;
  std::map<std::pair<c10::DeviceIndex, std::string>, const void*> kernels_;
};

// An operator that one function computes on CPUs and another one on CUDA devices. Given tensors may be undefined.
template <class Result, class... Arguments>
class DeviceOperator {
 public:
  using Function = Result(Arguments...);

  // `schema`: "name(Tensor x, float epsilon) -> Tensor". Each name is registered once in a process.
  DeviceOperator(const std::string& schema, Function* on_cpu, Function* on_gpu)
      : library_(torch::Library::FRAGMENT, "draftsmith", std::nullopt, __FILE__, __LINE__),
        operator_(defined(schema, on_cpu, on_gpu)) {}

  Result operator()(Arguments... arguments) const { return operator_.call(std::forward<Arguments>(arguments)...); }

 private:
  c10::TypedOperatorHandle<Function> defined(const std::string& schema, Function* on_cpu, Function* on_gpu) {
    const std::string name = schema.substr(0, schema.find('('));
    library_.def(schema.c_str());
    library_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CPU, on_cpu));
    library_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CUDA, on_gpu));
    const std::string whole = "draftsmith::" + name;
    return c10::Dispatcher::singleton().findSchemaOrThrow(whole.c_str(), "").template typed<Function>();
  }

  torch::Library library_;
  c10::TypedOperatorHandle<Function> operator_;
};

}  // namespace draftsmith
