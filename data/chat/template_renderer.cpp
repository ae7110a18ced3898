#include "data/chat/template_renderer.h"

#include <stdexcept>
#include <utility>

#include "data/chat/template_evaluator.h"
#include "data/chat/template_functions.h"
#include "data/chat/template_values.h"

namespace draftsmith::data {

namespace {

using Value = TemplateValue;

// Renders nodes.
class Renderer {
 public:
  Renderer(const Value& variables, const std::string& source) : evaluator_(variables, source) {}

  std::string text(const std::vector<TemplateNode>& nodes) {
    std::string result;
    render(nodes, result);
    return result;
  }

 private:
  enum class Flow { kOn, kBreak, kContinue };

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
        const Value value = evaluator_.evaluate(node.expressions[0]);
        out += evaluator_.at_line(node.line, [&] { return text_of_value(value); });
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
      if (is_true(evaluator_.evaluate(node.expressions[i]))) return render(node.bodies[i], out);
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
      value = evaluator_.evaluate(node.expressions[0]);
    }
    const std::string& name = node.names[0];
    if (node.names.size() == 1) {
      evaluator_.scopes().back()[name] = std::move(value);
      return;
    }
    for (auto scope = evaluator_.scopes().rbegin(); scope != evaluator_.scopes().rend(); ++scope) {
      const auto found = scope->find(name);
      if (found == scope->end()) continue;
      if (!found->second.is_object()) break;
      found->second[node.names[1]] = std::move(value);
      return;
    }
    evaluator_.fail(node.line, "'" + name + "' is no namespace");
  }

  void bind(const TemplateNode& node, const Value& item) {
    if (node.names.size() == 1) {
      evaluator_.scopes().back()[node.names[0]] = item;
      return;
    }
    if (!item.is_array() || item.size() != node.names.size()) {
      evaluator_.fail(node.line, "an element has not as many parts as the loop has variables");
    }
    for (size_t i = 0; i < node.names.size(); ++i) evaluator_.scopes().back()[node.names[i]] = item[i];
  }

  // Returns the elements that the loop goes through.
  std::vector<Value> loop_items(const TemplateNode& node) {
    const Value sequence = evaluator_.evaluate(node.expressions[0]);
    const Value list = evaluator_.at_line(node.line, [&] { return *apply_filter("list", sequence, {}); });
    std::vector<Value> items;
    for (const Value& item : list) {
      if (node.expressions.size() > 1) {
        bind(node, item);
        if (!is_true(evaluator_.evaluate(node.expressions[1]))) continue;
      }
      items.push_back(item);
    }
    return items;
  }

  Flow render_for(const TemplateNode& node, std::string& out) {
    evaluator_.scopes().emplace_back();
    const std::vector<Value> items = loop_items(node);
    for (size_t i = 0; i < items.size(); ++i) {
      evaluator_.scopes().back().clear();
      bind(node, items[i]);
      evaluator_.scopes().back()["loop"] = loop_variable(items, i);
      if (render(node.bodies[0], out) == Flow::kBreak) break;
    }
    evaluator_.scopes().pop_back();
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

  TemplateEvaluator evaluator_;
};

}  // namespace

std::string render_template(const std::vector<TemplateNode>& nodes, const TemplateValue& variables,
                            const std::string& source) {
  return Renderer(variables, source).text(nodes);
}

}  // namespace draftsmith::data
