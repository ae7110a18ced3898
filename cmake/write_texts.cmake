# Run at build time (see texts.cmake): writes a .cpp file with the texts of files.
#   FILES, and NAMES of them in the program; HEADER that declares FUNCTION in NAMESPACE; OUTPUT
cmake_policy(VERSION 3.25)

set(entries "")
foreach(file name IN ZIP_LISTS FILES NAMES)
  file(READ "${file}" text)
  string(APPEND entries "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()

file(WRITE "${OUTPUT}" "// Made by cmake/write_texts.cmake.
#include <array>

#include \"${HEADER}\"

namespace ${NAMESPACE} {

std::span<const EmbeddedText> ${FUNCTION}() {
  static constexpr auto kTexts = std::to_array<EmbeddedText>({
${entries}  });
  return kTexts;
}

}  // namespace ${NAMESPACE}
")
