// Tokens of a chat template: Jinja's text, expressions and statements, with the white space rules of Transformers
// (trim_blocks and lstrip_blocks: a statement's line leaves no blank line behind).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftsmith::data {

struct TemplateToken {
  enum class Kind { kName, kString, kInteger, kFloat, kOperator };
  Kind kind = Kind::kName;
  std::string text;  // of a string: its content
  int line = 1;
};

// Piece of a template: text, {{ an expression }} or {% a statement %}.
struct TemplateSegment {
  enum class Kind { kText, kExpression, kStatement };
  Kind kind = Kind::kText;
  std::string text = {};                   // of kText
  std::vector<TemplateToken> tokens = {};  // of the others
  int line = 1;
};

// Returns the pieces of a template. Errors: UserError that names `source` and line for an unfinished tag or string, and
// for characters that no expression has.
std::vector<TemplateSegment> split_template(std::string_view text, const std::string& source);

}  // namespace draftsmith::data
