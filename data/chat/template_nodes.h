// Statements of chat templates and their parser: if, for, set, break, continue and generation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/chat/template_expression.h"

namespace draftsmith::data {

struct TemplateNode {
  enum class Kind {
    kText,    // text
    kOutput,  // expressions[0]
    kIf,      // expressions: conditions; bodies: one for each, and that of else
    kFor,     // names: targets; expressions: sequence, and a filter if there is one; bodies: loop, else
    kSet,     // names: variable, and a member if there is one; expressions: value, or bodies: its text
    kGroup,   // bodies[0]
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<TemplateExpression> expressions = {};
  std::vector<std::vector<TemplateNode>> bodies = {};
  int line = 1;
};

// Parses a template, whose name in errors is `source`. Errors: UserError that names line and token, for statements that
// chat templates do not use here (macro, include, call, ...) too.
std::vector<TemplateNode> parse_template(std::string_view text, const std::string& source);

}  // namespace draftsmith::data
