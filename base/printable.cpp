#include "base/printable.h"

#include <fmt/format.h>

namespace draftsmith {

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text.size() > kLongest ? out + "..." : out;
}

}  // namespace draftsmith
