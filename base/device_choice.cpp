#include "base/device_choice.h"

#include <charconv>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>

#include "base/cuda_runtime.h"
#include "base/device_execution.h"
#include "base/device_kernels.h"
#include "base/error.h"
#include "base/logging.h"

namespace draftsmith {

namespace {

constexpr int kLeastCapability = 75;  // LibTorch's wheel for CUDA 13 has no code for older GPUs

// Adds 1 to numbers on the GPU by an operator of LibTorch, and again by an own kernel. Throws if either fails.
void probe_gpu(c10::Device device) {
  const at::Tensor numbers = at::ones({32}, at::TensorOptions(device).dtype(at::kFloat)).add(1);
  if (wants_own_kernels()) {
    static DeviceKernels kernels(
        {.main = {"probe.cu", "extern \"C\" __global__ void probe(float* x) { x[threadIdx.x] += 1; }"},
         .headers = {},
         .options = {}});
    const void* kernel = kernels.find(device, "probe");
    if (kernel == nullptr) throw RunError({"CUDA", "own kernels cannot be used", "", "", "see the warning above"});
    kernels.launch(kernel, device, {1}, {32}, numbers.mutable_data_ptr());
  }
  const float expected = wants_own_kernels() ? 3 : 2;
  if (!numbers.eq(expected).all().item<bool>()) {
    throw RunError({"CUDA", "the GPU computes wrong numbers", fmt::format("1 + 1 (+ 1) = {}", expected), "", ""});
  }
}

// Returns whether "auto" may take the first GPU, which is tried once a process.
bool gpu_is_usable() {
  static const bool usable = [] {
    const c10::Device device(c10::kCUDA, 0);
    const auto reason =
        reason_against_gpu([&] { return capability_of(cuda_runtime(), device.index()); }, [&] { probe_gpu(device); });
    if (reason) log_warning("the CPU is used, not the GPU: {}", *reason);
    return !reason;
  }();
  return usable;
}

// Returns the index after "cuda:", 0 for "cuda", nothing for other words.
std::optional<int> cuda_index(const std::string& name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  int index = 0;
  const char* begin = name.data() + 5;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  // c10::DeviceIndex has eight bits.
  return error == std::errc() && stop == end && index >= 0 && index < 128 ? std::optional(index) : std::nullopt;
}

int cuda_devices() {
  return at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
}

}  // namespace

std::optional<std::string> reason_against_gpu(const std::function<int()>& capability,
                                              const std::function<void()>& probe) {
  try {
    const int found = capability();
    if (found < kLeastCapability) {
      return fmt::format("its compute capability is {}.{}, and 7.5 or more is needed", found / 10, found % 10);
    }
    probe();
  } catch (const c10::Error& problem) {
    return problem.what_without_backtrace();
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return std::nullopt;
}

c10::Device choose_device(const std::string& name, const std::string& where) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  const bool automatic = name == "auto";
  const std::optional<int> index = automatic ? 0 : cuda_index(name);
  if (!index) {
    throw UserError({where, "unknown device", "auto, cpu, cuda or cuda:N", "'" + name + "'", ""});
  }
  const int count = cuda_devices();
  if (automatic && (count == 0 || !gpu_is_usable())) return c10::Device(c10::kCPU);
  if (count == 0) {
    const char* reason = at::detail::getCUDAHooks().isBuilt() ? "this machine has no usable NVIDIA GPU or driver"
                                                              : "this LibTorch was built without CUDA";
    throw UserError({where, "no CUDA device is available", "a CUDA device for '" + name + "'", reason,
                     "use --device cpu (or auto)"});
  }
  if (*index >= count) {
    throw UserError({where, "there is no such CUDA device", fmt::format("cuda:0 to cuda:{}", count - 1),
                     "'" + name + "'", "CUDA_VISIBLE_DEVICES limits which devices are seen"});
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*index));
}

}  // namespace draftsmith
