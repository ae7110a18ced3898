#include "data/chat/template_values.h"

#include <stdexcept>

#include <fmt/format.h>

#include "base/utf8.h"

namespace draftsmith::data {

namespace {

// Appends a value `depth` levels below the whole. Arguments as python_json().
void append_json(const TemplateValue& value, int64_t indent, int64_t depth, std::string& text) {
  if (!value.is_structured() || value.empty()) {
    text += value.is_discarded() ? "null" : value.dump();
    return;
  }
  const auto new_line = [&](int64_t level) {
    if (indent > 0) text += "\n" + std::string(static_cast<size_t>(indent * level), ' ');
  };
  text += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) text += indent > 0 ? "," : ", ";
    first = false;
    new_line(depth + 1);
    if (value.is_object()) text += TemplateValue(key).dump() + ": ";
    append_json(item, indent, depth + 1, text);
  }
  new_line(depth);
  text += value.is_object() ? "}" : "]";
}

}  // namespace

bool is_true(const TemplateValue& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return value.is_structured() && !value.empty();
}

std::string text_of_value(const TemplateValue& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_discarded()) return "";
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_float()) {
    const std::string text = fmt::format("{}", value.get<double>());
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
  }
  if (value.is_number()) return value.dump();
  throw std::invalid_argument("a list or a mapping has no text of its own: tojson gives one");
}

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> list;
  for (size_t at = 0; at < text.size();) {
    const size_t length = code_point_at(text, at).length;
    list.push_back(text.substr(at, length));
    at += length;
  }
  return list;
}

std::string python_json(const TemplateValue& value, int64_t indent) {
  std::string text;
  append_json(value, indent, 0, text);
  return text;
}

}  // namespace draftsmith::data
