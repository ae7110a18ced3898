// Expressions of chat templates and their parser: Jinja's operators, members, subscripts, slices, calls, filters and
// tests.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/chat/template_lexer.h"

namespace draftsmith::data {

// Value of an expression. A discarded value is undefined; null is none.
using TemplateValue = nlohmann::ordered_json;

struct TemplateExpression {
  enum class Kind {
    kLiteral,    // value
    kName,       // name
    kList,       // parts
    kDict,       // parts: key, value, key, value, ...
    kUnary,      // name: not, -, +
    kBinary,     // name: the operator; parts: left, right
    kCondition,  // parts: value, condition, and the other value if there is one
    kMember,     // name; parts: object
    kIndex,      // parts: object, index
    kSlice,      // parts: object, begin, end, step; none where absent
    kCall,       // parts: callee, arguments
    kFilter,     // name; parts: value, arguments
    kTest        // name; parts: value, arguments
  };
  Kind kind = Kind::kLiteral;
  std::string name = {};
  TemplateValue value = {};
  std::vector<TemplateExpression> parts = {};
  std::vector<std::string> keywords = {};  // of calls and filters: names of the last parts
  int line = 1;
};

// Reader of a tag's tokens.
class TemplateTokens {
 public:
  // Both must outlive the reader; `source` names the template in errors.
  TemplateTokens(const TemplateSegment& segment, const std::string& source) : segment_(segment), source_(source) {}

  bool done() const { return at_ >= segment_.tokens.size(); }
  int line() const { return done() ? segment_.line : segment_.tokens[at_].line; }
  // Returns whether the next token, or the one `ahead` of it, is this name or operator.
  bool next_is(std::string_view text, size_t ahead = 0) const;
  // Returns whether the next token is a text in quotes.
  bool next_is_string() const;
  // Passes the next token if it is this name or operator. Returns whether it was.
  bool accept(std::string_view text);
  // Errors: UserError unless the next token is this name or operator.
  void expect(std::string_view text);
  // Returns the next name. Errors: UserError if there is none.
  std::string name();
  // Returns the next token.
  const TemplateToken& take();
  // Errors: UserError unless all tokens are read.
  void expect_end() const;
  // Throws a UserError at the next token.
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const TemplateSegment& segment_;
  const std::string& source_;
  size_t at_ = 0;
};

// Reads an expression. `conditional`: it may be "a if c else b". Errors: UserError that names line and token.
TemplateExpression parse_expression(TemplateTokens& tokens, bool conditional = true);

}  // namespace draftsmith::data
