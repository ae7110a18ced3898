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

}  // namespace draftsmith
