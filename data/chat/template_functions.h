// Filters, methods and tests of chat templates, as Jinja and Python define them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/chat/template_expression.h"

namespace draftsmith::data {

// Arguments of a filter, method or test. The first `values.size() - keywords.size()` have no names.
struct TemplateArguments {
  std::vector<TemplateValue> values = {};
  std::vector<std::string> keywords = {};

  // Returns the argument at this place or of this name; undefined if there is none.
  TemplateValue get(size_t place, const std::string& name) const;
};

// Return the value that a filter or a method of `value` gives; nothing if its name is unknown.
// Errors: std::invalid_argument that says what was expected of value or arguments.
std::optional<TemplateValue> apply_filter(const std::string& name, const TemplateValue& value,
                                          const TemplateArguments& arguments);
std::optional<TemplateValue> call_method(const std::string& name, const TemplateValue& value,
                                         const TemplateArguments& arguments);

// Returns the verdict of a test; nothing if its name is unknown. Errors as above.
std::optional<bool> apply_test(const std::string& name, const TemplateValue& value, const TemplateArguments& arguments);

}  // namespace draftsmith::data
