#include "base/kernel_texts.h"

#include <stdexcept>

namespace draftsmith {

KernelSource kernel_source(std::span<const KernelText> texts, std::string_view name, std::vector<std::string> options) {
  KernelSource source;
  source.options = std::move(options);
  const std::span<const KernelText> base = base_kernel_texts();
  for (const KernelText& text : base) {
    if (text.name.ends_with(".cuh")) source.headers.push_back(text);
  }
  for (const KernelText& text : texts) {
    if (text.name == name) source.main = text;
    if (text.name.ends_with(".cuh") && texts.data() != base.data()) source.headers.push_back(text);
  }
  if (source.main.name.empty()) throw std::logic_error("no kernel source is named " + std::string(name));
  return source;
}

KernelSource kernel_source_of_type(std::span<const KernelText> texts, std::string_view name, const std::string& prefix,
                                   const std::string& type) {
  const std::string of_kernels = type == "fp32" ? "Float" : type == "bf16" ? "BFloat16" : type == "fp16" ? "Half" : "";
  if (of_kernels.empty()) throw std::logic_error("no kernels have the type " + type);
  KernelSource source = kernel_source(
      texts, name, {"--fmad=false", "-D" + prefix + "_SUFFIX=" + type, "-D" + prefix + "_TYPE=" + of_kernels});
  source.waits_for_inputs = true;
  return source;
}

}  // namespace draftsmith
