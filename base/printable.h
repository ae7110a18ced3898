// Text of untrusted files in messages: a terminal gets no control characters, and no endless lines.
#pragma once

#include <string>
#include <string_view>

namespace draftsmith {

// Whatever is not printable ASCII escaped as \xNN, cut at 120 characters.
std::string printable(std::string_view text);

}  // namespace draftsmith
