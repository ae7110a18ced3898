# Run at build time (see kernels.cmake): writes a .cpp file with the texts of kernel sources.
#   ROOT repository, FUNCTION, NAMES of files below the repository, OUTPUT
cmake_policy(VERSION 3.25)

set(entries "")
foreach(name IN LISTS NAMES)
  file(READ "${ROOT}/${name}" text)
  string(APPEND entries "    {\"${name}\", R\"kernel(${text})kernel\"},\n")
endforeach()

file(WRITE "${OUTPUT}" "// Made by cmake/write_kernel_texts.cmake.
#include <array>

#include \"base/kernel_texts.h\"

namespace draftsmith {

std::span<const KernelText> ${FUNCTION}() {
  static constexpr auto kTexts = std::to_array<KernelText>({
${entries}  });
  return kTexts;
}

}  // namespace draftsmith
")
