#include "data/chat/template_expression.h"

#include <charconv>
#include <initializer_list>
#include <utility>

#include "base/error.h"

namespace draftsmith::data {

namespace {

using Expression = TemplateExpression;
using ExpressionKind = TemplateExpression::Kind;

constexpr int kDeepest = 100;  // levels of nested expressions

Expression node(ExpressionKind kind, std::string name, int line) {
  Expression made;
  made.kind = kind;
  made.name = std::move(name);
  made.line = line;
  return made;
}

// Recursive descent through Jinja's levels of precedence.
class ExpressionParser {
 public:
  explicit ExpressionParser(TemplateTokens& tokens) : tokens_(tokens) {}

  Expression conditional() {
    if (++depth_ > kDeepest) tokens_.fail("expressions that are nested less deeply");
    Expression value = disjunction();
    while (tokens_.next_is("if")) {
      Expression condition = node(ExpressionKind::kCondition, "", tokens_.line());
      tokens_.take();
      condition.parts.push_back(std::move(value));
      condition.parts.push_back(disjunction());
      if (tokens_.accept("else")) condition.parts.push_back(conditional());
      value = std::move(condition);
    }
    --depth_;
    return value;
  }

  Expression disjunction() {
    return chain({"or"}, [this] { return chain({"and"}, [this] { return negation(); }); });
  }

 private:
  template <class Operand>
  Expression chain(std::initializer_list<std::string_view> operators, const Operand& operand) {
    Expression left = operand();
    for (;;) {
      bool found = false;
      for (const std::string_view name : operators) {
        if (found || !tokens_.next_is(name)) continue;
        found = true;
        left = binary(std::move(left), operand);
      }
      if (!found) return left;
    }
  }

  template <class Operand>
  Expression binary(Expression left, const Operand& operand) {
    Expression made = node(ExpressionKind::kBinary, tokens_.take().text, left.line);
    made.parts.push_back(std::move(left));
    made.parts.push_back(operand());
    return made;
  }

  Expression negation() {
    if (!tokens_.next_is("not")) return comparison();
    if (++depth_ > kDeepest) tokens_.fail("expressions that are nested less deeply");
    Expression made = node(ExpressionKind::kUnary, tokens_.take().text, tokens_.line());
    made.parts.push_back(negation());
    --depth_;
    return made;
  }

  Expression comparison() {
    Expression left = sum();
    for (;;) {
      if (tokens_.next_is("not") && tokens_.next_is("in", 1)) {
        tokens_.take();
        Expression negated = node(ExpressionKind::kUnary, "not", tokens_.line());
        negated.parts.push_back(binary(std::move(left), [this] { return sum(); }));
        left = std::move(negated);
        continue;
      }
      bool found = false;
      for (const std::string_view name : {"==", "!=", "<=", ">=", "<", ">", "in"}) {
        if (found || !tokens_.next_is(name)) continue;
        found = true;
        left = binary(std::move(left), [this] { return sum(); });
      }
      if (!found) return left;
    }
  }

  Expression sum() {
    return chain({"+", "-"}, [this] { return chain({"~"}, [this] { return product(); }); });
  }

  Expression product() {
    return chain({"*", "/", "//", "%"}, [this] { return unary(); });
  }

  Expression unary() {
    if (!tokens_.next_is("-") && !tokens_.next_is("+")) return filtered(chain({"**"}, [this] { return postfix(); }));
    if (++depth_ > kDeepest) tokens_.fail("expressions that are nested less deeply");
    Expression made = node(ExpressionKind::kUnary, tokens_.take().text, tokens_.line());
    made.parts.push_back(unary());
    --depth_;
    return made;
  }

  // Filters and tests.
  Expression filtered(Expression value) {
    for (;;) {
      if (tokens_.accept("|")) {
        Expression filter = node(ExpressionKind::kFilter, tokens_.name(), tokens_.line());
        filter.parts.push_back(std::move(value));
        if (tokens_.accept("(")) arguments(filter);
        value = std::move(filter);
      } else if (tokens_.accept("is")) {
        value = test(std::move(value));
      } else {
        return value;
      }
    }
  }

  Expression test(Expression value) {
    const bool negated = tokens_.accept("not");
    Expression made = node(ExpressionKind::kTest, tokens_.name(), tokens_.line());
    made.parts.push_back(std::move(value));
    if (tokens_.accept("(")) {
      arguments(made);
    } else if (made.name == "divisibleby" || made.name == "equalto" || made.name == "eq" || made.name == "in") {
      made.parts.push_back(postfix());
    }
    if (!negated) return made;
    Expression outer = node(ExpressionKind::kUnary, "not", made.line);
    outer.parts.push_back(std::move(made));
    return outer;
  }

  Expression postfix() {
    Expression value = primary();
    for (;;) {
      if (tokens_.accept(".")) {
        Expression member = node(ExpressionKind::kMember, tokens_.name(), tokens_.line());
        member.parts.push_back(std::move(value));
        value = std::move(member);
      } else if (tokens_.accept("[")) {
        value = subscript(std::move(value));
      } else if (tokens_.accept("(")) {
        Expression call = node(ExpressionKind::kCall, "", tokens_.line());
        call.parts.push_back(std::move(value));
        arguments(call);
        value = std::move(call);
      } else {
        return value;
      }
    }
  }

  // Reads arguments up to ")".
  void arguments(Expression& call) {
    while (!tokens_.accept(")")) {
      if (tokens_.next_is("=", 1)) {
        call.keywords.push_back(tokens_.name());
        tokens_.expect("=");
      } else if (!call.keywords.empty()) {
        tokens_.fail("a name for every argument after the first with one");
      }
      call.parts.push_back(conditional());
      if (!tokens_.next_is(")")) tokens_.expect(",");
    }
  }

  Expression subscript(Expression object) {
    Expression index = node(ExpressionKind::kIndex, "", tokens_.line());
    index.parts.push_back(std::move(object));
    for (;;) {
      const bool absent = tokens_.next_is(":") || tokens_.next_is("]");
      index.parts.push_back(absent ? node(ExpressionKind::kLiteral, "", tokens_.line()) : conditional());
      if (tokens_.accept("]")) break;
      if (index.parts.size() > 3) tokens_.fail("']'");
      tokens_.expect(":");
      index.kind = ExpressionKind::kSlice;
    }
    if (index.kind == ExpressionKind::kSlice) index.parts.resize(4);
    return index;
  }

  Expression primary() {
    if (tokens_.done()) tokens_.fail("a value");
    const int line = tokens_.line();
    if (tokens_.accept("(")) return parenthesis(line);
    if (tokens_.accept("[")) return list(node(ExpressionKind::kList, "", line), "]");
    if (tokens_.accept("{")) return dict(line);
    const TemplateToken& token = tokens_.take();
    Expression made = node(ExpressionKind::kLiteral, "", line);
    if (token.kind == TemplateToken::Kind::kString) {
      made.value = token.text;
      while (!tokens_.done() && tokens_.next_is_string())
        made.value = made.value.get<std::string>() + tokens_.take().text;
    } else if (token.kind == TemplateToken::Kind::kInteger || token.kind == TemplateToken::Kind::kFloat) {
      made.value = TemplateValue::parse(token.text, nullptr, false);
    } else if (token.kind == TemplateToken::Kind::kName) {
      return named(token.text, line);
    } else {
      tokens_.fail("a value in place of '" + token.text + "'");
    }
    return made;
  }

  static Expression named(const std::string& name, int line) {
    Expression made = node(ExpressionKind::kLiteral, "", line);
    if (name == "true" || name == "True") {
      made.value = true;
    } else if (name == "false" || name == "False") {
      made.value = false;
    } else if (name != "none" && name != "None") {
      made = node(ExpressionKind::kName, name, line);
    }
    return made;
  }

  Expression parenthesis(int line) {
    if (tokens_.accept(")")) return node(ExpressionKind::kList, "", line);
    Expression first = conditional();
    if (tokens_.accept(")")) return first;
    tokens_.expect(",");
    Expression tuple = node(ExpressionKind::kList, "", line);
    tuple.parts.push_back(std::move(first));
    return list(std::move(tuple), ")");
  }

  Expression list(Expression made, std::string_view end) {
    while (!tokens_.accept(end)) {
      made.parts.push_back(conditional());
      if (!tokens_.next_is(end)) tokens_.expect(",");
    }
    return made;
  }

  Expression dict(int line) {
    Expression made = node(ExpressionKind::kDict, "", line);
    while (!tokens_.accept("}")) {
      made.parts.push_back(conditional());
      tokens_.expect(":");
      made.parts.push_back(conditional());
      if (!tokens_.next_is("}")) tokens_.expect(",");
    }
    return made;
  }

  TemplateTokens& tokens_;
  int depth_ = 0;
};

}  // namespace

bool TemplateTokens::next_is(std::string_view text, size_t ahead) const {
  if (at_ + ahead >= segment_.tokens.size()) return false;
  const TemplateToken& token = segment_.tokens[at_ + ahead];
  const bool word = token.kind == TemplateToken::Kind::kName || token.kind == TemplateToken::Kind::kOperator;
  return word && token.text == text;
}

bool TemplateTokens::next_is_string() const {
  return at_ < segment_.tokens.size() && segment_.tokens[at_].kind == TemplateToken::Kind::kString;
}

bool TemplateTokens::accept(std::string_view text) {
  if (!next_is(text)) return false;
  ++at_;
  return true;
}

void TemplateTokens::expect(std::string_view text) {
  if (!accept(text)) fail("'" + std::string(text) + "'");
}

std::string TemplateTokens::name() {
  if (done() || segment_.tokens[at_].kind != TemplateToken::Kind::kName) fail("a name");
  return take().text;
}

const TemplateToken& TemplateTokens::take() {
  if (done()) fail("more");
  return segment_.tokens[at_++];
}

void TemplateTokens::expect_end() const {
  if (!done()) fail("the end of the tag");
}

void TemplateTokens::fail(const std::string& expected) const {
  throw UserError({.where = source_ + ":" + std::to_string(line()),
                   .what = "the chat template cannot be read",
                   .expected = expected,
                   .found = done() ? "the end of the tag" : "'" + segment_.tokens[at_].text + "'",
                   .hint = "templates may use Jinja's expressions, if, for and set (docs/reference/chat.md)"});
}

TemplateExpression parse_expression(TemplateTokens& tokens, bool conditional) {
  ExpressionParser parser(tokens);
  return conditional ? parser.conditional() : parser.disjunction();
}

}  // namespace draftsmith::data
