// Text of untrusted files for messages, without control characters and endless lines.
#pragma once

#include <string>
#include <string_view>

namespace draftsmith {

// Returns the text with all but printable ASCII escaped as \xNN, cut at 120 characters.
std::string printable(std::string_view text);

}  // namespace draftsmith
