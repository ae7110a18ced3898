#include "base/device.h"

#include <filesystem>
#include <set>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/openmp_waits.h"

namespace draftsmith {

namespace {

struct NamedType {
  const char* name;
  c10::ScalarType type;
};

constexpr NamedType kTypes[] = {{"fp32", c10::ScalarType::Float},
                                {"bf16", c10::ScalarType::BFloat16},
                                {"fp16", c10::ScalarType::Half},
                                {"fp64", c10::ScalarType::Double}};

constexpr const char* kInt8 = "int8";

// Returns the float type of a name. Errors: UserError, which says what was `expected`.
c10::ScalarType find_type(const std::string& name, const std::string& where, const char* expected) {
  for (const NamedType& known : kTypes) {
    if (name == known.name) return known.type;
  }
  throw UserError({where, "unknown number type", expected, "'" + name + "'", ""});
}

}  // namespace

c10::ScalarType parse_dtype(const std::string& name, const std::string& where) {
  return find_type(name, where, "fp32, bf16, fp16 or fp64");
}

c10::ScalarType parse_weight_type(const std::string& name, const std::string& where) {
  if (name == kInt8) return c10::ScalarType::Char;
  return find_type(name, where, "fp32, bf16, fp16, fp64 or int8");
}

std::string dtype_name(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Char) return kInt8;
  for (const NamedType& known : kTypes) {
    if (dtype == known.type) return known.name;
  }
  return c10::toString(dtype);
}

int64_t set_threads(int64_t threads) {
  shorten_openmp_waits();
  if (threads > 0 && threads != at::get_num_threads()) at::set_num_threads(static_cast<int>(threads));
  return at::get_num_threads();
}

void set_matmul_precision(const std::string& name, const std::string& where) {
  if (name != "highest" && name != "high") {
    throw UserError({where, "unknown precision of matrix products", "highest or high", "'" + name + "'", ""});
  }
  const bool reduced = name == "high";
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(reduced);
  context.setAllowBF16ReductionCuBLAS(reduced);
  context.setAllowFP16ReductionCuBLAS(reduced);
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

}  // namespace draftsmith
