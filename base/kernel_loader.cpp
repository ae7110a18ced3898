#include "base/kernel_loader.h"

#include <algorithm>
#include <cstdlib>
#include <deque>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"

namespace draftsmith {

KernelSource kernel_source(std::span<const EmbeddedText> texts, std::string_view name,
                           std::vector<std::string> options) {
  KernelSource source;
  source.options = std::move(options);
  const std::span<const EmbeddedText> base = base_kernel_texts();
  for (const EmbeddedText& text : base) {
    if (text.name.ends_with(".cuh")) source.headers.push_back(text);
  }
  for (const EmbeddedText& text : texts) {
    if (text.name == name) source.main = text;
    if (text.name.ends_with(".cuh") && texts.data() != base.data()) source.headers.push_back(text);
  }
  if (source.main.name.empty()) throw std::logic_error("no kernel source is named " + std::string(name));
  return source;
}

KernelSource kernel_source_of_type(std::span<const EmbeddedText> texts, std::string_view name,
                                   const std::string& prefix, const std::string& type) {
  const std::string of_kernels = type == "fp32" ? "Float" : type == "bf16" ? "BFloat16" : type == "fp16" ? "Half" : "";
  if (of_kernels.empty()) throw std::logic_error("no kernels have the type " + type);
  KernelSource source = kernel_source(
      texts, name, {"--fmad=false", "-D" + prefix + "_SUFFIX=" + type, "-D" + prefix + "_TYPE=" + of_kernels});
  source.waits_for_inputs = true;
  return source;
}

// NVRTC's own functions, declared as its documentation says: results are 0 or an error's number, programs are opaque.
struct Nvrtc::Functions {
  using Program = void*;
  int (*nvrtcVersion)(int*, int*);
  int (*nvrtcGetNumSupportedArchs)(int*);
  int (*nvrtcGetSupportedArchs)(int*);
  const char* (*nvrtcGetErrorString)(int);
  int (*nvrtcCreateProgram)(Program*, const char* text, const char* name, int headers, const char* const* texts,
                            const char* const* names);
  int (*nvrtcDestroyProgram)(Program*);
  int (*nvrtcCompileProgram)(Program, int options, const char* const*);
  int (*nvrtcGetProgramLogSize)(Program, size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);
  int (*nvrtcGetCUBINSize)(Program, size_t*);
  int (*nvrtcGetCUBIN)(Program, char*);

  explicit Functions(void* library);
};

namespace {

namespace fs = std::filesystem;

// Returns the folder of CUDA's runtime library in this process; empty if there is none.
fs::path runtime_folder() {
  Dl_info info{};
  const void* known = dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
  if (known == nullptr || dladdr(known, &info) == 0 || info.dli_fname == nullptr) return {};
  return fs::path(info.dli_fname).parent_path();
}

// Returns the names under which the library is looked for, the likeliest first.
std::vector<std::string> candidates(const std::string& path) {
  if (!path.empty()) return {path};
  if (const char* named = std::getenv("DRAFTSMITH_NVRTC"); named != nullptr && *named != '\0') return {named};
  std::vector<std::string> names;
  const fs::path folder = runtime_folder();
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
    if (!folder.empty()) names.push_back(folder / name);
  }
  names.insert(names.end(), {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  return names;
}

void* open_library(const std::string& path) {
  std::string reason;
  const std::vector<std::string> names = candidates(path);
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (reason.empty()) reason = dlerror();
  }
  throw RunError({"", "NVRTC, which compiles kernels for the GPU, cannot be loaded", names.back(), reason,
                  "install the wheel nvidia-cuda-nvrtc, or name the library in DRAFTSMITH_NVRTC"});
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw RunError({"NVRTC", "the library lacks a function", name, "", "install NVRTC 11.8 or newer"});
}

// A source as NVRTC takes it: addresses of texts that end in zeros.
struct Arguments {
  std::string text;
  std::string name;
  std::deque<std::string> strings;  // its elements never move
  std::vector<const char*> header_texts;
  std::vector<const char*> header_names;
  std::vector<const char*> options;

  Arguments(const KernelSource& source, const std::string& architecture)
      : text(source.main.text), name(source.main.name) {
    const auto kept = [&](std::string_view string) { return strings.emplace_back(string).c_str(); };
    for (const EmbeddedText& header : source.headers) {
      header_texts.push_back(kept(header.text));
      header_names.push_back(kept(header.name));
    }
    options = {kept("--gpu-architecture=" + architecture), "--std=c++17", "--ptxas-options=-v"};
    for (const std::string& option : source.options) options.push_back(kept(option));
  }
};

// Returns the bytes of which `size` gives the number and `read` the values; none if either fails.
template <class Size, class Read>
std::string text_of_program(Size size, Read read, void* program) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (read(program, text.data()) != 0) return "";
  return text;
}

}  // namespace

Nvrtc::Functions::Functions(void* library) {
  find(library, "nvrtcVersion", nvrtcVersion);
  find(library, "nvrtcGetNumSupportedArchs", nvrtcGetNumSupportedArchs);
  find(library, "nvrtcGetSupportedArchs", nvrtcGetSupportedArchs);
  find(library, "nvrtcGetErrorString", nvrtcGetErrorString);
  find(library, "nvrtcCreateProgram", nvrtcCreateProgram);
  find(library, "nvrtcDestroyProgram", nvrtcDestroyProgram);
  find(library, "nvrtcCompileProgram", nvrtcCompileProgram);
  find(library, "nvrtcGetProgramLogSize", nvrtcGetProgramLogSize);
  find(library, "nvrtcGetProgramLog", nvrtcGetProgramLog);
  find(library, "nvrtcGetCUBINSize", nvrtcGetCUBINSize);
  find(library, "nvrtcGetCUBIN", nvrtcGetCUBIN);
}

Nvrtc::Nvrtc(const std::string& path) : functions_(std::make_unique<const Functions>(open_library(path))) {
  int major = 0;
  int minor = 0;
  int count = 0;
  if (functions_->nvrtcVersion(&major, &minor) == 0) version_ = fmt::format("{}.{}", major, minor);
  if (functions_->nvrtcGetNumSupportedArchs(&count) == 0) {
    capabilities_.resize(static_cast<size_t>(count));
    functions_->nvrtcGetSupportedArchs(capabilities_.data());
    std::sort(capabilities_.begin(), capabilities_.end());
  }
}

// The library itself stays in the process.
Nvrtc::~Nvrtc() = default;

CompiledKernels Nvrtc::compile(const KernelSource& source, const std::string& architecture) const {
  const Arguments arguments(source, architecture);
  Functions::Program program = nullptr;
  int status = functions_->nvrtcCreateProgram(&program, arguments.text.c_str(), arguments.name.c_str(),
                                              static_cast<int>(source.headers.size()), arguments.header_texts.data(),
                                              arguments.header_names.data());
  const std::unique_ptr<Functions::Program, int (*)(Functions::Program*)> owner(&program,
                                                                                functions_->nvrtcDestroyProgram);
  if (status == 0) {
    status =
        functions_->nvrtcCompileProgram(program, static_cast<int>(arguments.options.size()), arguments.options.data());
  }
  CompiledKernels compiled;
  compiled.log = text_of_program(functions_->nvrtcGetProgramLogSize, functions_->nvrtcGetProgramLog, program);
  compiled.log.resize(std::min(compiled.log.size(), compiled.log.find('\0')));
  if (status == 0) {
    compiled.cubin = text_of_program(functions_->nvrtcGetCUBINSize, functions_->nvrtcGetCUBIN, program);
  }
  if (compiled.cubin.empty()) {
    throw RunError({arguments.name, "the kernels cannot be compiled for " + architecture, "",
                    fmt::format("{}\n{}", functions_->nvrtcGetErrorString(status), compiled.log),
                    fmt::format("this is NVRTC {}", version_)});
  }
  return compiled;
}

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestFile = uint64_t{1} << 30;

fs::path folder_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

// Returns what stands before the cubin in its file.
std::string head_of(const std::string& key, std::string_view cubin) {
  return "draftsmith kernels 1\nkey " + key + "\nsha256 " + sha256(cubin) + "\n";
}

}  // namespace

fs::path kernel_cache_folder() {
  if (fs::path own = folder_of_variable("DRAFTSMITH_KERNEL_CACHE"); !own.empty()) return own;
  // The standard of these folders ignores relative paths.
  if (const fs::path cache = folder_of_variable("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "draftsmith" / "kernels";
  }
  if (const fs::path home = folder_of_variable("HOME"); !home.empty()) {
    return home / ".cache" / "draftsmith" / "kernels";
  }
  return {};
}

std::string kernel_key(const KernelSource& source, const std::string& architecture, const std::string& compiler) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(std::to_string(text.size()) + ":");
    hash.update(text);
  };
  add(architecture);
  add(compiler);
  add(source.main.name);
  add(source.main.text);
  for (const EmbeddedText& header : source.headers) {
    add(header.name);
    add(header.text);
  }
  for (const std::string& option : source.options) add(option);
  return hash.hex_digest();
}

fs::path KernelCache::file_of(const std::string& key) const {
  return folder_ / (key + ".kernels");
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  std::error_code error;
  const fs::path file = file_of(key);
  if (folder_.empty() || !fs::exists(file, error)) return std::nullopt;
  try {
    std::string content = read_file(file, kLargestFile);
    const size_t size_of_head = head_of(key, "").size();
    if (content.size() > size_of_head) {
      std::string cubin = content.substr(size_of_head);
      if (content.starts_with(head_of(key, cubin))) return cubin;
    }
    log_warning("{}: the file of kernels is damaged; they are compiled again", file.string());
  } catch (const Error& problem) {
    log_warning("kernels are compiled again: {}", problem.what());
  }
  return std::nullopt;
}

void KernelCache::store(const std::string& key, std::string_view cubin) {
  if (folder_.empty()) return;
  try {
    make_directories(folder_);
    AtomicFile file(file_of(key));
    file.write(head_of(key, cubin));
    file.write(cubin);
    file.commit();
  } catch (const Error& problem) {
    if (warned_.exchange(true)) return;
    log_warning(
        "compiled kernels cannot be kept, so that every start compiles them: {}\n"
        "  hint: name a folder that can be written in DRAFTSMITH_KERNEL_CACHE",
        problem.what());
  }
}

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
