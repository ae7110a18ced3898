#include "data/chat/template_functions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string_view>

#include "data/chat/template_texts.h"
#include "data/chat/template_values.h"

namespace draftsmith::data {

namespace {

using Value = TemplateValue;
using Arguments = TemplateArguments;

// `what` is no reference: GCC 13 takes the result for a reference to the argument.
const std::string& text_in(const Value& value, std::string_view what) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  throw std::invalid_argument(std::string(what) + " needs a text");
}

int64_t length_of(const Value& value) {
  if (value.is_string()) return std::ssize(characters_of(value.get_ref<const std::string&>()));
  if (value.is_array() || value.is_object()) return static_cast<int64_t>(value.size());
  if (value.is_discarded()) return 0;
  throw std::invalid_argument("length needs a text, a list or a mapping");
}

// Returns the elements of a list, the keys of a mapping or the characters of a text.
Value elements_of(const Value& value) {
  Value list = Value::array();
  if (value.is_array()) return value;
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) list.push_back(key);
  } else if (value.is_string()) {
    for (std::string& c : characters_of(value.get_ref<const std::string&>())) list.push_back(std::move(c));
  } else if (!value.is_discarded()) {
    throw std::invalid_argument("expected a list, a mapping or a text");
  }
  return list;
}

Value items_of(const Value& value) {
  if (value.is_discarded()) return Value::array();
  if (!value.is_object()) throw std::invalid_argument("items needs a mapping");
  Value list = Value::array();
  for (const auto& [key, item] : value.items()) list.push_back(Value::array({key, item}));
  return list;
}

Value joined(const Value& list, const Value& separator) {
  std::string text;
  bool first = true;
  for (const Value& item : elements_of(list)) {
    if (!first && separator.is_string()) text += separator.get_ref<const std::string&>();
    first = false;
    text += text_of_value(item);
  }
  return text;
}

Value default_of(const Value& value, const Arguments& arguments) {
  const bool replaces = value.is_discarded() || (is_true(arguments.get(1, "boolean")) && !is_true(value));
  if (!replaces) return value;
  const Value other = arguments.get(0, "default_value");
  return other.is_discarded() ? Value("") : other;
}

Value integer_of(const Value& value) {
  if (value.is_number_float()) return static_cast<int64_t>(value.get<double>());
  if (value.is_number() || value.is_boolean()) return value.is_boolean() ? Value(value.get<bool>() ? 1 : 0) : value;
  try {
    return static_cast<int64_t>(std::stoll(text_in(value, "int")));
  } catch (const std::logic_error&) {
    return 0;  // Jinja's default
  }
}

using Function = std::function<Value(const Value&, const Arguments&)>;

Value reversed(const Value& value) {
  Value list = elements_of(value);
  std::reverse(list.begin(), list.end());
  return list;
}

const std::map<std::string, Function>& filters() {
  static const std::map<std::string, Function> kFilters = {
      {"trim", [](const Value& v,
                  const Arguments& a) { return stripped_text(text_of_value(v), a.get(0, "chars"), true, true); }},
      {"length", [](const Value& v, const Arguments&) { return length_of(v); }},
      {"count", [](const Value& v, const Arguments&) { return length_of(v); }},
      {"upper", [](const Value& v, const Arguments&) { return with_case(text_of_value(v), true); }},
      {"lower", [](const Value& v, const Arguments&) { return with_case(text_of_value(v), false); }},
      {"capitalize", [](const Value& v, const Arguments&) { return capitalized_text(text_of_value(v)); }},
      {"title", [](const Value& v, const Arguments&) { return titled_text(text_of_value(v)); }},
      {"string", [](const Value& v, const Arguments&) { return text_of_value(v); }},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"int", [](const Value& v, const Arguments&) { return integer_of(v); }},
      {"list", [](const Value& v, const Arguments&) { return elements_of(v); }},
      {"items", [](const Value& v, const Arguments&) { return items_of(v); }},
      {"reverse", [](const Value& v, const Arguments&) { return reversed(v); }},
      {"default", default_of},
      {"d", default_of},
      {"join", [](const Value& v, const Arguments& a) { return joined(v, a.get(0, "d")); }},
      {"first",
       [](const Value& v, const Arguments&) {
         const Value list = elements_of(v);
         return list.empty() ? Value(Value::value_t::discarded) : list.front();
       }},
      {"last",
       [](const Value& v, const Arguments&) {
         const Value list = elements_of(v);
         return list.empty() ? Value(Value::value_t::discarded) : list.back();
       }},
      {"replace",
       [](const Value& v, const Arguments& a) {
         return replaced_text(text_of_value(v), text_in(a.get(0, "old"), "replace"),
                              text_in(a.get(1, "new"), "replace"), a.get(2, "count"));
       }},
      {"tojson",
       [](const Value& v, const Arguments& a) {
         const Value indent = a.get(0, "indent");
         return python_json(v, indent.is_number_integer() ? indent.get<int64_t>() : 0);
       }},
  };
  return kFilters;
}

Value ends_of(const Value& value, const Value& wanted, bool begin) {
  const std::string& text = text_in(value, begin ? "startswith" : "endswith");
  const Value list = wanted.is_array() ? wanted : Value::array({wanted});
  return std::any_of(list.begin(), list.end(), [&](const Value& one) {
    const std::string& part = text_in(one, begin ? "startswith" : "endswith");
    return begin ? text.starts_with(part) : text.ends_with(part);
  });
}

const std::map<std::string, Function>& text_methods() {
  static const std::map<std::string, Function> kMethods = {
      {"strip",
       [](const Value& v, const Arguments& a) { return stripped_text(text_in(v, ""), a.get(0, ""), true, true); }},
      {"lstrip",
       [](const Value& v, const Arguments& a) { return stripped_text(text_in(v, ""), a.get(0, ""), true, false); }},
      {"rstrip",
       [](const Value& v, const Arguments& a) { return stripped_text(text_in(v, ""), a.get(0, ""), false, true); }},
      {"startswith", [](const Value& v, const Arguments& a) { return ends_of(v, a.get(0, ""), true); }},
      {"endswith", [](const Value& v, const Arguments& a) { return ends_of(v, a.get(0, ""), false); }},
      {"upper", [](const Value& v, const Arguments&) { return with_case(text_in(v, ""), true); }},
      {"lower", [](const Value& v, const Arguments&) { return with_case(text_in(v, ""), false); }},
      {"capitalize", [](const Value& v, const Arguments&) { return capitalized_text(text_in(v, "")); }},
      {"title", [](const Value& v, const Arguments&) { return titled_text(text_in(v, "")); }},
      {"split", [](const Value& v, const Arguments& a) { return split_text(text_in(v, ""), a.get(0, "sep")); }},
      {"replace",
       [](const Value& v, const Arguments& a) {
         return replaced_text(text_in(v, ""), text_in(a.get(0, "old"), "replace"), text_in(a.get(1, "new"), "replace"),
                              a.get(2, "count"));
       }},
      {"join", [](const Value& v, const Arguments& a) { return joined(a.get(0, ""), v); }},
  };
  return kMethods;
}

const std::map<std::string, Function>& mapping_methods() {
  static const std::map<std::string, Function> kMethods = {
      {"items", [](const Value& v, const Arguments&) { return items_of(v); }},
      {"keys", [](const Value& v, const Arguments&) { return elements_of(v); }},
      {"values",
       [](const Value& v, const Arguments&) {
         Value list = Value::array();
         for (const auto& [key, item] : v.items()) list.push_back(item);
         return list;
       }},
      {"get",
       [](const Value& v, const Arguments& a) {
         const Value key = a.get(0, "key");
         const auto found = key.is_string() ? v.find(key.get<std::string>()) : v.end();
         if (found != v.end()) return *found;
         const Value other = a.get(1, "default");
         return other.is_discarded() ? Value() : other;
       }},
  };
  return kMethods;
}

std::optional<Value> call(const std::map<std::string, Function>& functions, const std::string& name, const Value& value,
                          const Arguments& arguments) {
  const auto found = functions.find(name);
  if (found == functions.end()) return std::nullopt;
  return found->second(value, arguments);
}

bool is_integer(const Value& value) {
  return value.is_number_integer();
}

using Verdict = std::function<bool(const Value&, const Arguments&)>;

const std::map<std::string, Verdict>& tests() {
  static const std::map<std::string, Verdict> kTests = {
      {"defined", [](const Value& v, const Arguments&) { return !v.is_discarded(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_discarded(); }},
      {"none", [](const Value& v, const Arguments&) { return v.is_null(); }},
      {"string", [](const Value& v, const Arguments&) { return v.is_string(); }},
      {"mapping", [](const Value& v, const Arguments&) { return v.is_object(); }},
      {"sequence", [](const Value& v, const Arguments&) { return v.is_structured() || v.is_string(); }},
      {"iterable",
       [](const Value& v, const Arguments&) { return v.is_structured() || v.is_string() || v.is_discarded(); }},
      {"number", [](const Value& v, const Arguments&) { return v.is_number() || v.is_boolean(); }},
      {"integer", [](const Value& v, const Arguments&) { return is_integer(v); }},
      {"float", [](const Value& v, const Arguments&) { return v.is_number_float(); }},
      {"boolean", [](const Value& v, const Arguments&) { return v.is_boolean(); }},
      {"true", [](const Value& v, const Arguments&) { return v == Value(true); }},
      {"false", [](const Value& v, const Arguments&) { return v == Value(false); }},
      {"odd", [](const Value& v, const Arguments&) { return is_integer(v) && v.get<int64_t>() % 2 != 0; }},
      {"even", [](const Value& v, const Arguments&) { return is_integer(v) && v.get<int64_t>() % 2 == 0; }},
      {"eq", [](const Value& v, const Arguments& a) { return v == a.get(0, ""); }},
      {"equalto", [](const Value& v, const Arguments& a) { return v == a.get(0, ""); }},
  };
  return kTests;
}

}  // namespace

TemplateValue TemplateArguments::get(size_t place, const std::string& name) const {
  const size_t unnamed = values.size() - keywords.size();
  if (place < unnamed) return values[place];
  const auto found = std::find(keywords.begin(), keywords.end(), name);
  if (found == keywords.end()) return TemplateValue(TemplateValue::value_t::discarded);
  return values[unnamed + static_cast<size_t>(found - keywords.begin())];
}

std::optional<TemplateValue> apply_filter(const std::string& name, const TemplateValue& value,
                                          const TemplateArguments& arguments) {
  return call(filters(), name, value, arguments);
}

std::optional<TemplateValue> call_method(const std::string& name, const TemplateValue& value,
                                         const TemplateArguments& arguments) {
  if (value.is_string()) return call(text_methods(), name, value, arguments);
  if (value.is_object()) return call(mapping_methods(), name, value, arguments);
  return std::nullopt;
}

std::optional<bool> apply_test(const std::string& name, const TemplateValue& value,
                               const TemplateArguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) return std::nullopt;
  return found->second(value, arguments);
}

}  // namespace draftsmith::data
