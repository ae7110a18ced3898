// Values of a chat template's expressions, with variables in nested scopes.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/chat/template_expression.h"
#include "data/chat/template_functions.h"

namespace draftsmith::data {

class TemplateEvaluator {
 public:
  using Scope = std::map<std::string, TemplateValue>;

  // Begins with one scope, that of `variables` (a mapping). Errors name `source`, which must outlive the evaluator.
  TemplateEvaluator(const TemplateValue& variables, const std::string& source);

  // Returns the scopes, the innermost one last.
  std::vector<Scope>& scopes() { return scopes_; }

  // Returns the value of an expression. Errors: UserError with its line, as render_template().
  TemplateValue evaluate(const TemplateExpression& expression) const;

  // Throws a UserError that names the source and this line.
  [[noreturn]] void fail(int line, const std::string& what, const std::string& hint = "") const;

  // Runs an action, whose std::invalid_argument becomes an error of the line.
  template <class Action>
  auto at_line(int line, const Action& action) const {
    try {
      return action();
    } catch (const std::invalid_argument& error) {
      fail(line, error.what());
    }
  }

 private:
  [[noreturn]] void fail_unknown(int line, const std::string& what) const;
  TemplateValue variable(const std::string& name) const;
  TemplateValue dict(const TemplateExpression& expression) const;
  TemplateValue unary(const TemplateExpression& expression) const;
  TemplateValue binary(const TemplateExpression& expression) const;
  // Returns the object of a member or an element, which must be defined.
  TemplateValue defined_object(const TemplateExpression& expression, const std::string& part) const;
  TemplateValue member(const TemplateExpression& expression) const;
  TemplateValue element(const TemplateExpression& expression) const;
  TemplateValue slice(const TemplateExpression& expression) const;
  TemplateArguments arguments_of(const TemplateExpression& expression) const;
  TemplateValue call(const TemplateExpression& expression) const;
  TemplateValue filter(const TemplateExpression& expression) const;
  TemplateValue test(const TemplateExpression& expression) const;

  const std::string& source_;
  std::vector<Scope> scopes_;
};

}  // namespace draftsmith::data
