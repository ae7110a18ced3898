// Operators, subscripts and slices of chat templates, as Python defines them.
#pragma once

#include <string>
#include <vector>

#include "data/chat/template_expression.h"

namespace draftsmith::data {

// Return the values of an operator that reads both operands ("and" and "or" do not), and of a sign.
// Errors, of all functions here: std::invalid_argument that says what was expected.
TemplateValue apply_operator(const std::string& name, const TemplateValue& left, const TemplateValue& right);
TemplateValue apply_sign(const std::string& name, const TemplateValue& value);

// Returns an element of a list, a mapping or a text; undefined if there is none.
TemplateValue element_of(const TemplateValue& object, const TemplateValue& index);

// Returns the slice [begin:end:step] of a list or a text; null stands for an absent bound.
TemplateValue slice_of(const TemplateValue& object, const TemplateValue& begin, const TemplateValue& end,
                       const TemplateValue& step);

}  // namespace draftsmith::data
