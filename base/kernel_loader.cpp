#include "base/kernel_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace draftsmith {

std::string architecture_for(int capability, const Nvrtc& compiler) {
  int chosen = 0;
  for (const int known : compiler.capabilities()) {
    // Cubins run on later minor versions of their major one.
    if (known / 10 == capability / 10 && known <= capability) chosen = known;
  }
  if (chosen == 0) {
    throw RunError({"NVRTC", fmt::format("version {} knows no architecture of this GPU", compiler.version()),
                    fmt::format("sm_{}", capability), fmt::format("sm_{}", fmt::join(compiler.capabilities(), ", sm_")),
                    "install the NVRTC of the GPU's CUDA version"});
  }
  return fmt::format("sm_{}", chosen);
}

KernelSource early_source(KernelSource source) {
  source.options.push_back("-DEARLY_LAUNCH");
  return source;
}

std::string cubin_of(const KernelSource& source, const std::string& architecture, KernelTools& tools) {
  const std::string key = kernel_key(source, architecture, tools.compiler.version());
  if (std::optional<std::string> known = tools.cache.find(key)) return *known;
  std::string cubin = tools.compiler.compile(source, architecture).cubin;
  tools.cache.store(key, cubin);
  return cubin;
}

const void* KernelLoader::kernel(int device, const std::string& name) {
  const std::string& architecture = architecture_of(device);
  const void*& known = kernels_[{architecture, name}];
  if (known != nullptr) return known;
  const CudaRuntime& runtime = tools_->runtime;
  void* kernel = nullptr;
  runtime.check(runtime.get_kernel(&kernel, library_for(architecture), name.c_str()),
                fmt::format("the kernel {} of {} cannot be found", name, source_.main.name));
  // CUDA loads code when it is first asked for: so a cubin that the driver refuses is noticed before a launch.
  alignas(16) std::byte attributes[1024];  // cudaFuncAttributes has about 150 bytes
  runtime.check(runtime.get_function_attributes(attributes, kernel),
                fmt::format("the kernel {} of {} cannot be loaded", name, source_.main.name));
  return known = kernel;
}

const std::string& KernelLoader::architecture_of(int device) {
  const auto known = architectures_.find(device);
  if (known != architectures_.end()) return known->second;
  const int capability = capability_of(tools_->runtime, device);
  return architectures_[device] = architecture_for(capability, tools_->compiler);
}

bool KernelLoader::launches_early(int device) {
  return may_launch_early() && is_early(architecture_of(device));
}

bool KernelLoader::is_early(const std::string& architecture) const {
  return may_launch_early() && std::stoi(architecture.substr(3)) >= kFirstEarly;
}

void* KernelLoader::library_for(const std::string& architecture) {
  const auto known = libraries_.find(architecture);
  if (known != libraries_.end()) return known->second;
  const CudaRuntime& runtime = tools_->runtime;
  const std::string cubin = cubin_of(is_early(architecture) ? early_source(source_) : source_, architecture, *tools_);
  void* library = nullptr;
  runtime.check(runtime.load_library(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                fmt::format("the kernels of {} cannot be loaded", source_.main.name));
  return libraries_[architecture] = library;
}

}  // namespace draftsmith
