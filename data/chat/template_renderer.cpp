#include "data/chat/template_renderer.h"

#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "data/chat/template_functions.h"
#include "data/chat/template_operators.h"

namespace draftsmith::data {

namespace {

using Value = TemplateValue;
using Expression = TemplateExpression;
using Scope = std::map<std::string, Value>;

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

// Evaluates expressions and renders nodes, with variables in nested scopes.
class Renderer {
 public:
  Renderer(const Value& variables, const std::string& source) : source_(source), scopes_(1) {
    for (const auto& [name, value] : variables.items()) scopes_.front()[name] = value;
  }

  std::string text(const std::vector<TemplateNode>& nodes) {
    std::string result;
    render(nodes, result);
    return result;
  }

 private:
  enum class Flow { kOn, kBreak, kContinue };

  [[noreturn]] void fail(int line, const std::string& what, const std::string& hint = "") const {
    throw UserError({.where = source_ + ":" + std::to_string(line),
                     .what = "the chat template cannot be rendered: " + what,
                     .hint = hint});
  }

  [[noreturn]] void fail_unknown(int line, const std::string& what) const {
    fail(line, what + " is unknown here", "docs/reference/chat.md lists what chat templates may use");
  }

  // Runs an action, whose std::invalid_argument becomes an error of the line.
  template <class Action>
  auto at_line(int line, const Action& action) const {
    try {
      return action();
    } catch (const std::invalid_argument& error) {
      fail(line, error.what());
    }
  }

  // ---- expressions ----

  Value evaluate(const Expression& expression) {
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

  Value variable(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    }
    return undefined_value();
  }

  Value dict(const Expression& expression) {
    Value made = Value::object();
    for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
      const Value key = evaluate(expression.parts[i]);
      if (!key.is_string()) fail(expression.line, "keys of mappings must be texts");
      made[key.get<std::string>()] = evaluate(expression.parts[i + 1]);
    }
    return made;
  }

  Value unary(const Expression& expression) {
    const Value value = evaluate(expression.parts[0]);
    if (expression.name == "not") return !is_true(value);
    return at_line(expression.line, [&] { return apply_sign(expression.name, value); });
  }

  Value binary(const Expression& expression) {
    Value left = evaluate(expression.parts[0]);
    if (expression.name == "and") return is_true(left) ? evaluate(expression.parts[1]) : left;
    if (expression.name == "or") return is_true(left) ? left : evaluate(expression.parts[1]);
    const Value right = evaluate(expression.parts[1]);
    return at_line(expression.line, [&] { return apply_operator(expression.name, left, right); });
  }

  // Returns the object of a member or an element, which must be defined.
  Value defined_object(const Expression& expression, const std::string& part) {
    Value object = evaluate(expression.parts[0]);
    if (object.is_discarded()) {
      const std::string& name = expression.parts[0].name;
      fail(expression.line,
           (name.empty() ? "an undefined value" : "'" + name + "', which is undefined,") + " has no " + part);
    }
    return object;
  }

  Value member(const Expression& expression) {
    const Value object = defined_object(expression, "'" + expression.name + "'");
    return object.is_object() ? element_of(object, expression.name) : undefined_value();
  }

  Value element(const Expression& expression) {
    const Value object = defined_object(expression, "elements");
    const Value index = evaluate(expression.parts[1]);
    return at_line(expression.line, [&] { return element_of(object, index); });
  }

  Value slice(const Expression& expression) {
    const Value object = defined_object(expression, "elements");
    const Value begin = evaluate(expression.parts[1]);
    const Value end = evaluate(expression.parts[2]);
    const Value step = evaluate(expression.parts[3]);
    return at_line(expression.line, [&] { return slice_of(object, begin, end, step); });
  }

  TemplateArguments arguments_of(const Expression& expression) {
    TemplateArguments arguments{.keywords = expression.keywords};
    for (size_t i = 1; i < expression.parts.size(); ++i) arguments.values.push_back(evaluate(expression.parts[i]));
    return arguments;
  }

  Value call(const Expression& expression) {
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
      for (size_t i = 0; i < arguments.keywords.size(); ++i)
        made[arguments.keywords[i]] = arguments.values[unnamed + i];
      return made;
    }
    fail_unknown(expression.line, "function '" + callee.name + "'");
  }

  Value filter(const Expression& expression) {
    const Value value = evaluate(expression.parts[0]);
    const TemplateArguments arguments = arguments_of(expression);
    const auto result = at_line(expression.line, [&] { return apply_filter(expression.name, value, arguments); });
    if (!result) fail_unknown(expression.line, "filter '" + expression.name + "'");
    return *result;
  }

  Value test(const Expression& expression) {
    const Value value = evaluate(expression.parts[0]);
    const TemplateArguments arguments = arguments_of(expression);
    const auto result = at_line(expression.line, [&] { return apply_test(expression.name, value, arguments); });
    if (!result) fail_unknown(expression.line, "test '" + expression.name + "'");
    return *result;
  }

  // ---- statements ----

  Flow render(const std::vector<TemplateNode>& nodes, std::string& out) {
    for (const TemplateNode& node : nodes) {
      const Flow flow = render(node, out);
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  Flow render(const TemplateNode& node, std::string& out) {
    using Kind = TemplateNode::Kind;
    switch (node.kind) {
      case Kind::kText:
        out += node.text;
        return Flow::kOn;
      case Kind::kOutput: {
        const Value value = evaluate(node.expressions[0]);
        out += at_line(node.line, [&] { return text_of_value(value); });
        return Flow::kOn;
      }
      case Kind::kIf:
        return render_if(node, out);
      case Kind::kFor:
        return render_for(node, out);
      case Kind::kSet:
        set(node);
        return Flow::kOn;
      case Kind::kGroup:
        return render(node.bodies[0], out);
      case Kind::kBreak:
        return Flow::kBreak;
      case Kind::kContinue:
        return Flow::kContinue;
    }
    throw std::logic_error("a statement of an unknown kind");
  }

  Flow render_if(const TemplateNode& node, std::string& out) {
    for (size_t i = 0; i < node.expressions.size(); ++i) {
      if (is_true(evaluate(node.expressions[i]))) return render(node.bodies[i], out);
    }
    const bool with_else = node.bodies.size() > node.expressions.size();
    return with_else ? render(node.bodies.back(), out) : Flow::kOn;
  }

  void set(const TemplateNode& node) {
    Value value;
    if (node.expressions.empty()) {
      std::string text;
      render(node.bodies[0], text);
      value = text;
    } else {
      value = evaluate(node.expressions[0]);
    }
    const std::string& name = node.names[0];
    if (node.names.size() == 1) {
      scopes_.back()[name] = std::move(value);
      return;
    }
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found == scope->end()) continue;
      if (!found->second.is_object()) break;
      found->second[node.names[1]] = std::move(value);
      return;
    }
    fail(node.line, "'" + name + "' is no namespace");
  }

  void bind(const TemplateNode& node, const Value& item) {
    if (node.names.size() == 1) {
      scopes_.back()[node.names[0]] = item;
      return;
    }
    if (!item.is_array() || item.size() != node.names.size()) {
      fail(node.line, "an element has not as many parts as the loop has variables");
    }
    for (size_t i = 0; i < node.names.size(); ++i) scopes_.back()[node.names[i]] = item[i];
  }

  // Returns the elements that the loop goes through.
  std::vector<Value> loop_items(const TemplateNode& node) {
    const Value sequence = evaluate(node.expressions[0]);
    const Value list = at_line(node.line, [&] { return *apply_filter("list", sequence, {}); });
    std::vector<Value> items;
    for (const Value& item : list) {
      if (node.expressions.size() > 1) {
        bind(node, item);
        if (!is_true(evaluate(node.expressions[1]))) continue;
      }
      items.push_back(item);
    }
    return items;
  }

  Flow render_for(const TemplateNode& node, std::string& out) {
    scopes_.emplace_back();
    const std::vector<Value> items = loop_items(node);
    for (size_t i = 0; i < items.size(); ++i) {
      scopes_.back().clear();
      bind(node, items[i]);
      scopes_.back()["loop"] = loop_variable(items, i);
      if (render(node.bodies[0], out) == Flow::kBreak) break;
    }
    scopes_.pop_back();
    if (items.empty() && node.bodies.size() > 1) return render(node.bodies[1], out);
    return Flow::kOn;
  }

  static Value loop_variable(const std::vector<Value>& items, size_t i) {
    Value loop = {{"index", i + 1},
                  {"index0", i},
                  {"first", i == 0},
                  {"last", i + 1 == items.size()},
                  {"length", items.size()},
                  {"revindex", items.size() - i},
                  {"revindex0", items.size() - i - 1}};
    if (i > 0) loop["previtem"] = items[i - 1];
    if (i + 1 < items.size()) loop["nextitem"] = items[i + 1];
    return loop;
  }

  const std::string& source_;
  std::vector<Scope> scopes_;
};

}  // namespace

std::string render_template(const std::vector<TemplateNode>& nodes, const TemplateValue& variables,
                            const std::string& source) {
  return Renderer(variables, source).text(nodes);
}

}  // namespace draftsmith::data
