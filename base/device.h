// Devices: number type, threads and precision, as named by options and flags; what a device is and does, which one is
// chosen, and how a command begins on it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "base/options.h"

namespace draftsmith {

// Returns the type named "fp32", "bf16", "fp16" or "fp64", and for "int8" that of a byte: weights of int8, all other
// numbers of fp32. Throws UserError for other words.
c10::ScalarType parse_dtype(const std::string& name, const std::string& where = "--dtype");
// Returns the name that this reads.
std::string dtype_name(c10::ScalarType dtype);

// Sets the number of threads for LibTorch's work on the CPU, unless it is 0. Returns the number in use. The first call
// lets idle threads of OpenMP sleep soon, for the whole process.
int64_t set_threads(int64_t threads);

// Lets GPUs compute matrix products of fp32 in fp32, not in TF32 (10 bits), and sum those of bf16 and fp16 in fp32.
void use_exact_products();

// Waits until the device has done all its work, so that times are right. Returns at once for the CPU.
void synchronize(c10::Device device);

// Returns the device's product name, for example "NVIDIA H200".
std::string device_description(c10::Device device);

// While it exists, LibTorch works with so many threads on the CPU, as by set_threads(); 0 changes
// nothing. Its destructor restores the number before.
class ThreadCount {
 public:
  explicit ThreadCount(int64_t threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int64_t before_;
};

// Returns the device named "auto", "cpu", "cuda" or "cuda:N". "auto" is the first CUDA device if its capability is 7.5
// or more and LibTorch's operators and own kernels run on it. Otherwise it is the CPU; a warning says why if there is a
// GPU. `where` names the option or flag in errors. Throws UserError for other words, and for a CUDA device that this
// machine or this LibTorch does not have.
c10::Device choose_device(const std::string& name, const std::string& where = "--device");

// Returns why "auto" does not take a GPU; nothing if it does. `capability` returns 90 for 9.0; `probe` runs work on the
// GPU. Both throw if that fails. Exposed for tests.
std::optional<std::string> reason_against_gpu(const std::function<int()>& capability,
                                              const std::function<void()>& probe);

// How a command runs: what changes no result. The fields are flags of every command that runs a model.
struct ExecutionOptions {
  std::string device = "auto";
  int64_t threads = 0;  // 0: LibTorch's choice
  bool quiet = false;

  static Fields<ExecutionOptions> fields();
};

// Checks the options and sets quiet, threads and precision. Returns the device. Throws a UserError with every problem.
c10::Device begin_execution(const ExecutionOptions& execution);

}  // namespace draftsmith
