#include "base/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <regex>
#include <sstream>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith {

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
    for (const KernelText& header : source.headers) {
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

std::vector<KernelUse> kernel_uses(const std::string& log) {
  static const std::regex kEntry("Compiling entry function '([^']+)'");
  static const std::regex kStack("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads");
  static const std::regex kRegisters("Used (\\d+) registers");
  static const std::regex kShared("(\\d+) bytes smem");
  std::vector<KernelUse> uses;
  std::istringstream lines(log);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, kEntry)) uses.push_back({.kernel = match[1]});
    if (uses.empty()) continue;
    if (std::regex_search(line, match, kStack)) {
      uses.back().stack = std::stoi(match[1]);
      uses.back().spilled = std::stoi(match[2]) + std::stoi(match[3]);
    }
    if (std::regex_search(line, match, kRegisters)) uses.back().registers = std::stoi(match[1]);
    if (std::regex_search(line, match, kShared)) uses.back().shared_bytes = std::stoi(match[1]);
  }
  std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.kernel < b.kernel; });
  return uses;
}

}  // namespace draftsmith
