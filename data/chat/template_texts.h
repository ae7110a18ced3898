// Functions on texts of chat templates, as Python's str has them.
#pragma once

#include <string>

#include "data/chat/template_expression.h"

namespace draftsmith::data {

// Returns the text without characters at its ends: those of `set`, or white space if `set` is no text.
std::string stripped_text(const std::string& text, const TemplateValue& set, bool left, bool right);

// Returns the text with `with` in place of `old`: of the first `count` ones, or of all if `count` is no integer.
// Errors: std::invalid_argument for an empty `old`.
std::string replaced_text(const std::string& text, const std::string& old, const std::string& with,
                          const TemplateValue& count);

// Returns the list of the parts between separators, or of the words if `separator` is no text. Errors:
// std::invalid_argument for an empty separator.
TemplateValue split_text(const std::string& text, const TemplateValue& separator);

// Changes ASCII letters, as templates need it; other letters stay.
std::string with_case(std::string text, bool upper);

// Return the text with a capital letter at its start, or at the start of each word; other letters become small.
std::string capitalized_text(const std::string& text);
std::string titled_text(const std::string& text);

}  // namespace draftsmith::data
