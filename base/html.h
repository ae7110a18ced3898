// Text for HTML pages.
#pragma once

#include <string>

namespace draftsmith {

// Returns the text with &, <, > and double quotes escaped for HTML. Attributes must stand in double quotes.
std::string escape_html(const std::string& text);

}  // namespace draftsmith
