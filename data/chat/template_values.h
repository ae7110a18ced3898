// Values of chat templates as Jinja and Python see them: truth, text, characters, JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/chat/template_expression.h"

namespace draftsmith::data {

// Returns whether the value counts as true.
bool is_true(const TemplateValue& value);

// Returns the value's text: that of Python's str(). Errors: std::invalid_argument for lists and mappings.
std::string text_of_value(const TemplateValue& value);

// Returns the characters of a text as texts.
std::vector<std::string> characters_of(const std::string& text);

// Returns JSON as Python's json.dumps writes it without ASCII escapes: ", " and ": " between the elements of a line.
// `indent` is the number of blanks a level; 0: all in one line. An undefined value is null.
std::string python_json(const TemplateValue& value, int64_t indent);

}  // namespace draftsmith::data
