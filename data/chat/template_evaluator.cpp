#include "data/chat/template_evaluator.h"

#include "base/error.h"
#include "data/chat/template_operators.h"
#include "data/chat/template_values.h"

namespace draftsmith::data {

namespace {

using Value = TemplateValue;
using Expression = TemplateExpression;

constexpr int64_t kLongestRange = 100000;  // as Jinja's sandbox

const Value& undefined_value() {
  static const Value kUndefined(Value::value_t::discarded);
  return kUndefined;
}

Value made_range(const std::vector<Value>& values) {
  std::vector<int64_t> numbers;
  for (const Value& value : values) {
    if (!value.is_number_integer()) throw std::invalid_argument("range needs integers");
    numbers.push_back(value.get<int64_t>());
  }
  if (numbers.empty() || numbers.size() > 3) throw std::invalid_argument("range needs one to three integers");
  const int64_t first = numbers.size() > 1 ? numbers[0] : 0;
  const int64_t last = numbers.size() > 1 ? numbers[1] : numbers[0];
  const int64_t step = numbers.size() > 2 ? numbers[2] : 1;
  if (step == 0) throw std::invalid_argument("range needs a step that is not zero");
  Value list = Value::array();
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    list.push_back(i);
    if (std::ssize(list) > kLongestRange) throw std::invalid_argument("range is too long");
  }
  return list;
}

}  // namespace

TemplateEvaluator::TemplateEvaluator(const TemplateValue& variables, const std::string& source)
    : source_(source), scopes_(1) {
  for (const auto& [name, value] : variables.items()) scopes_.front()[name] = value;
}

void TemplateEvaluator::fail(int line, const std::string& what, const std::string& hint) const {
  throw UserError({.where = source_ + ":" + std::to_string(line),
                   .what = "the chat template cannot be rendered: " + what,
                   .hint = hint});
}

void TemplateEvaluator::fail_unknown(int line, const std::string& what) const {
  fail(line, what + " is unknown here", "docs/reference/chat.md lists what chat templates may use");
}

TemplateValue TemplateEvaluator::evaluate(const Expression& expression) const {
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::kLiteral:
      return expression.value;
    case Kind::kName:
      return variable(expression.name);
    case Kind::kList: {
      Value list = Value::array();
      for (const Expression& part : expression.parts) list.push_back(evaluate(part));
      return list;
    }
    case Kind::kDict:
      return dict(expression);
    case Kind::kUnary:
      return unary(expression);
    case Kind::kBinary:
      return binary(expression);
    case Kind::kCondition:
      if (is_true(evaluate(expression.parts[1]))) return evaluate(expression.parts[0]);
      return expression.parts.size() > 2 ? evaluate(expression.parts[2]) : undefined_value();
    case Kind::kMember:
      return member(expression);
    case Kind::kIndex:
      return element(expression);
    case Kind::kSlice:
      return slice(expression);
    case Kind::kCall:
      return call(expression);
    case Kind::kFilter:
      return filter(expression);
    case Kind::kTest:
      return test(expression);
  }
  throw std::logic_error("an expression of an unknown kind");
}

TemplateValue TemplateEvaluator::variable(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end()) return found->second;
  }
  return undefined_value();
}

TemplateValue TemplateEvaluator::dict(const Expression& expression) const {
  Value made = Value::object();
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = evaluate(expression.parts[i]);
    if (!key.is_string()) fail(expression.line, "keys of mappings must be texts");
    made[key.get<std::string>()] = evaluate(expression.parts[i + 1]);
  }
  return made;
}

TemplateValue TemplateEvaluator::unary(const Expression& expression) const {
  const Value value = evaluate(expression.parts[0]);
  if (expression.name == "not") return !is_true(value);
  return at_line(expression.line, [&] { return apply_sign(expression.name, value); });
}

TemplateValue TemplateEvaluator::binary(const Expression& expression) const {
  Value left = evaluate(expression.parts[0]);
  if (expression.name == "and") return is_true(left) ? evaluate(expression.parts[1]) : left;
  if (expression.name == "or") return is_true(left) ? left : evaluate(expression.parts[1]);
  const Value right = evaluate(expression.parts[1]);
  return at_line(expression.line, [&] { return apply_operator(expression.name, left, right); });
}

TemplateValue TemplateEvaluator::defined_object(const Expression& expression, const std::string& part) const {
  Value object = evaluate(expression.parts[0]);
  if (object.is_discarded()) {
    const std::string& name = expression.parts[0].name;
    fail(expression.line,
         (name.empty() ? "an undefined value" : "'" + name + "', which is undefined,") + " has no " + part);
  }
  return object;
}

TemplateValue TemplateEvaluator::member(const Expression& expression) const {
  const Value object = defined_object(expression, "'" + expression.name + "'");
  return object.is_object() ? element_of(object, expression.name) : undefined_value();
}

TemplateValue TemplateEvaluator::element(const Expression& expression) const {
  const Value object = defined_object(expression, "elements");
  const Value index = evaluate(expression.parts[1]);
  return at_line(expression.line, [&] { return element_of(object, index); });
}

TemplateValue TemplateEvaluator::slice(const Expression& expression) const {
  const Value object = defined_object(expression, "elements");
  const Value begin = evaluate(expression.parts[1]);
  const Value end = evaluate(expression.parts[2]);
  const Value step = evaluate(expression.parts[3]);
  return at_line(expression.line, [&] { return slice_of(object, begin, end, step); });
}

TemplateArguments TemplateEvaluator::arguments_of(const Expression& expression) const {
  TemplateArguments arguments{.keywords = expression.keywords};
  for (size_t i = 1; i < expression.parts.size(); ++i) arguments.values.push_back(evaluate(expression.parts[i]));
  return arguments;
}

TemplateValue TemplateEvaluator::call(const Expression& expression) const {
  const Expression& callee = expression.parts[0];
  const TemplateArguments arguments = arguments_of(expression);
  if (callee.kind == Expression::Kind::kMember) {
    const Value object = defined_object(callee, "'" + callee.name + "'");
    const auto result = at_line(expression.line, [&] { return call_method(callee.name, object, arguments); });
    if (!result) fail_unknown(expression.line, "method '" + callee.name + "'");
    return *result;
  }
  if (callee.name == "raise_exception") {
    const Value message = arguments.get(0, "message");
    fail(expression.line, "it refuses these messages: " + (message.is_string() ? message.get<std::string>() : ""));
  }
  if (callee.name == "range") return at_line(expression.line, [&] { return made_range(arguments.values); });
  if (callee.name == "namespace" || callee.name == "dict") {
    Value made = Value::object();
    const size_t unnamed = arguments.values.size() - arguments.keywords.size();
    for (size_t i = 0; i < arguments.keywords.size(); ++i) made[arguments.keywords[i]] = arguments.values[unnamed + i];
    return made;
  }
  fail_unknown(expression.line, "function '" + callee.name + "'");
}

TemplateValue TemplateEvaluator::filter(const Expression& expression) const {
  const Value value = evaluate(expression.parts[0]);
  const TemplateArguments arguments = arguments_of(expression);
  const auto result = at_line(expression.line, [&] { return apply_filter(expression.name, value, arguments); });
  if (!result) fail_unknown(expression.line, "filter '" + expression.name + "'");
  return *result;
}

TemplateValue TemplateEvaluator::test(const Expression& expression) const {
  const Value value = evaluate(expression.parts[0]);
  const TemplateArguments arguments = arguments_of(expression);
  const auto result = at_line(expression.line, [&] { return apply_test(expression.name, value, arguments); });
  if (!result) fail_unknown(expression.line, "test '" + expression.name + "'");
  return *result;
}

}  // namespace draftsmith::data
