#include "base/device.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <semaphore>
#include <set>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>

#include "base/cuda_runtime.h"
#include "base/device_kernels.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/util.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace draftsmith {
namespace {

struct NamedType {
  const char* name;
  c10::ScalarType type;
};

constexpr NamedType kTypes[] = {{"fp32", c10::ScalarType::Float},
                                {"bf16", c10::ScalarType::BFloat16},
                                {"fp16", c10::ScalarType::Half},
                                {"fp64", c10::ScalarType::Double},
                                {"int8", c10::ScalarType::Char}};

#ifdef _OPENMP
// GNU's OpenMP waits briefly while it manages more threads than there are processors. It has no other switch once a
// program runs. So this thread keeps a pool of that many, which sleep.
void keep_pool(std::binary_semaphore& made) {
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
  {}
  made.release();
  static std::binary_semaphore never(0);
  never.acquire();
}
#endif

// Lets OpenMP's threads sleep some 50 us after a region. By default GNU's OpenMP lets them spin for milliseconds:
// meanwhile a decoding step's own threads (model/cpu/team.h) and other processes have a processor less, and two
// processes that train wait for each other's spinning threads. Does nothing where the environment says how to wait
// (OMP_WAIT_POLICY, GOMP_SPINCOUNT) or another OpenMP is in use. The first call does it, for the whole process.
void shorten_openmp_waits() {
#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__)
  static const bool done = [] {
    if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return false;
    static std::binary_semaphore made(0);
    std::thread([] { keep_pool(made); }).detach();
    made.acquire();
    return true;
  }();
  static_cast<void>(done);
#endif
}

}  // namespace

c10::ScalarType parse_dtype(const std::string& name, const std::string& where) {
  const auto* known = std::ranges::find(kTypes, name, &NamedType::name);
  if (known != std::end(kTypes)) return known->type;
  throw UserError({where, "unknown number type", "fp32, bf16, fp16, fp64 or int8", "'" + name + "'", ""});
}

std::string dtype_name(c10::ScalarType dtype) {
  const auto* known = std::ranges::find(kTypes, dtype, &NamedType::type);
  return known != std::end(kTypes) ? known->name : c10::toString(dtype);
}

int64_t set_threads(int64_t threads) {
  shorten_openmp_waits();
  if (threads > 0 && threads != at::get_num_threads()) at::set_num_threads(static_cast<int>(threads));
  return at::get_num_threads();
}

void use_exact_products() {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16ReductionCuBLAS(false);
}

void synchronize(c10::Device device) {
  if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
}

std::string device_description(c10::Device device) {
  if (!device.is_cuda()) return cpu_name();
  namespace fs = std::filesystem;
  std::error_code error;
  std::set<std::string> models;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    const fs::path information = entry.path() / "information";
    if (!fs::exists(information, error)) continue;
    const std::string text = read_file(information);
    const size_t begin = text.find_first_not_of(" \t", text.find("Model:") + 6);
    if (begin != std::string::npos) models.insert(text.substr(begin, text.find('\n', begin) - begin));
  }
  std::string description;
  for (const std::string& model : models) description += (description.empty() ? "" : ", ") + model;
  return description.empty() ? "CUDA device" : description;
}

ThreadCount::ThreadCount(int64_t threads) : before_(set_threads(0)) {
  set_threads(threads);
}

ThreadCount::~ThreadCount() {
  set_threads(before_);
}

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
  const auto index = parse_whole<int>(std::string_view(name).substr(5));
  return index && *index >= 0 && *index < 128 ? index : std::nullopt;  // c10::DeviceIndex has eight bits
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
  const int count = at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
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

Fields<ExecutionOptions> ExecutionOptions::fields() {
  return Fields<ExecutionOptions>("run: flags of every command that runs a model")
      .add("device", &ExecutionOptions::device, NoResult{}, "auto (the first GPU, else the CPU), cpu, cuda or cuda:N.")
      .add("threads", &ExecutionOptions::threads, Range{0, 1024}, Unit{"threads"}, NoResult{},
           "CPU threads; 0 lets LibTorch choose, usually one for each physical core.")
      .add("quiet", &ExecutionOptions::quiet, NoResult{}, "Show no progress, and no messages except warnings.");
}

c10::Device begin_execution(const ExecutionOptions& execution) {
  throw_problems_of(validate_options<ExecutionOptions>, execution, "");
  set_quiet(execution.quiet);
  const c10::Device device = choose_device(execution.device);
  set_threads(execution.threads);
  use_exact_products();
  return device;
}

}  // namespace draftsmith
