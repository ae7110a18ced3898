// Text for HTML pages.
#pragma once

#include <string>

namespace draftsmith {

// Returns the text with &, <, > and quotes escaped for HTML.
std::string escape_html(const std::string& text);

}  // namespace draftsmith
