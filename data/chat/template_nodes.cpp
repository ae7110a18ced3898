#include "data/chat/template_nodes.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/chat/template_lexer.h"

namespace draftsmith::data {

namespace {

using Nodes = std::vector<TemplateNode>;

constexpr int kDeepestBlocks = 60;

// Parser of the pieces of a template.
class TemplateParser {
 public:
  TemplateParser(std::vector<TemplateSegment> segments, const std::string& source)
      : segments_(std::move(segments)), source_(source) {}

  Nodes all() {
    Nodes nodes = block({});
    if (at_ == segments_.size()) return nodes;
    throw UserError({.where = place(segments_[at_].line),
                     .what = "a chat template's statement ends a block that was not begun",
                     .expected = "if, for, set or the end of the template",
                     .found = statement_name(segments_[at_])});
  }

 private:
  std::string place(int line) const { return source_ + ":" + std::to_string(line); }

  static std::string statement_name(const TemplateSegment& segment) {
    return segment.tokens.empty() ? "" : segment.tokens.front().text;
  }

  // Returns the nodes up to a statement of one of these names, which is not passed.
  Nodes block(const std::vector<std::string>& ends) {
    if (++depth_ > kDeepestBlocks) {
      throw UserError({.where = source_, .what = "the chat template nests its statements too deeply"});
    }
    Nodes nodes;
    for (; at_ < segments_.size();) {
      const TemplateSegment& segment = segments_[at_];
      const std::string name = statement_name(segment);
      const bool statement = segment.kind == TemplateSegment::Kind::kStatement;
      const bool closes = name.starts_with("end") || name == "else" || name == "elif";
      if (statement && (closes || std::find(ends.begin(), ends.end(), name) != ends.end())) break;
      nodes.push_back(one_node());
    }
    --depth_;
    return nodes;
  }

  TemplateNode one_node() {
    const TemplateSegment& segment = segments_[at_++];
    if (segment.kind == TemplateSegment::Kind::kText) return {.text = segment.text, .line = segment.line};
    TemplateTokens tokens(segment, source_);
    if (segment.kind == TemplateSegment::Kind::kStatement) return statement(tokens, segment.line);
    TemplateNode node{.kind = TemplateNode::Kind::kOutput, .line = segment.line};
    node.expressions.push_back(parse_expression(tokens));
    tokens.expect_end();
    return node;
  }

  TemplateNode statement(TemplateTokens& tokens, int line) {
    if (tokens.accept("if")) return if_node(tokens, line);
    if (tokens.accept("for")) return for_node(tokens, line);
    if (tokens.accept("set")) return set_node(tokens, line);
    if (tokens.accept("break")) return simple(tokens, TemplateNode::Kind::kBreak, line);
    if (tokens.accept("continue")) return simple(tokens, TemplateNode::Kind::kContinue, line);
    if (tokens.accept("generation")) {
      TemplateNode node = simple(tokens, TemplateNode::Kind::kGroup, line);
      node.bodies.push_back(block({"endgeneration"}));
      end("endgeneration", line);
      return node;
    }
    tokens.fail("if, for, set, break, continue or generation, which are all that is known here");
  }

  static TemplateNode simple(const TemplateTokens& tokens, TemplateNode::Kind kind, int line) {
    tokens.expect_end();
    return {.kind = kind, .line = line};
  }

  // Returns the statement that ends a block.
  const TemplateSegment& closing(const std::string& expected, int line) {
    if (at_ < segments_.size()) return segments_[at_++];
    throw UserError({.where = place(line),
                     .what = "a statement of the chat template has no end",
                     .expected = expected,
                     .found = "the end of the template"});
  }

  void end(const std::string& name, int line) {
    TemplateTokens tokens(closing(name, line), source_);
    tokens.expect(name);
    tokens.expect_end();
  }

  TemplateNode if_node(TemplateTokens& first, int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kIf, .line = line};
    node.expressions.push_back(parse_expression(first));
    first.expect_end();
    for (;;) {
      node.bodies.push_back(block({"elif", "else", "endif"}));
      TemplateTokens tokens(closing("endif", line), source_);
      const bool with_else = node.bodies.size() > node.expressions.size();
      if (!with_else && tokens.accept("elif")) {
        node.expressions.push_back(parse_expression(tokens));
      } else if (!with_else && tokens.accept("else")) {
        node.bodies.push_back(block({"endif"}));
        end("endif", line);
        return node;
      } else {
        tokens.expect("endif");
        return node;
      }
      tokens.expect_end();
    }
  }

  TemplateNode for_node(TemplateTokens& tokens, int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kFor, .line = line};
    const bool brackets = tokens.accept("(");
    do {
      node.names.push_back(tokens.name());
    } while (tokens.accept(","));
    if (brackets) tokens.expect(")");
    tokens.expect("in");
    node.expressions.push_back(parse_expression(tokens, false));
    if (tokens.accept("if")) node.expressions.push_back(parse_expression(tokens));
    tokens.expect_end();
    node.bodies.push_back(block({"else", "endfor"}));
    TemplateTokens closed(closing("endfor", line), source_);
    if (closed.accept("else")) {
      node.bodies.push_back(block({"endfor"}));
      end("endfor", line);
    } else {
      closed.expect("endfor");
    }
    return node;
  }

  TemplateNode set_node(TemplateTokens& tokens, int line) {
    TemplateNode node{.kind = TemplateNode::Kind::kSet, .line = line};
    node.names.push_back(tokens.name());
    if (tokens.accept(".")) node.names.push_back(tokens.name());
    if (tokens.accept("=")) {
      node.expressions.push_back(parse_expression(tokens));
      tokens.expect_end();
      return node;
    }
    tokens.expect_end();
    node.bodies.push_back(block({"endset"}));
    end("endset", line);
    return node;
  }

  std::vector<TemplateSegment> segments_;
  const std::string& source_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<TemplateNode> parse_template(std::string_view text, const std::string& source) {
  return TemplateParser(split_template(text, source), source).all();
}

}  // namespace draftsmith::data
