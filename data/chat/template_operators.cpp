#include "data/chat/template_operators.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "data/chat/template_values.h"

namespace draftsmith::data {

namespace {

using Value = TemplateValue;

bool is_numeric(const Value& value) {
  return value.is_number() || value.is_boolean();
}

double number_of(const Value& value) {
  return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
}

bool is_whole(const Value& value) {
  return value.is_number_integer() || value.is_boolean();
}

int64_t whole_of(const Value& value) {
  return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<int64_t>();
}

[[noreturn]] void refuse(const std::string& name, const std::string& expected) {
  throw std::invalid_argument("operator '" + name + "' needs " + expected);
}

Value whole_arithmetic(const std::string& name, int64_t a, int64_t b) {
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (b == 0) refuse(name, "a divisor that is not zero");
  const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);  // rounds down, as Python
  return name == "//" ? quotient : a - quotient * b;
}

Value arithmetic(const std::string& name, const Value& left, const Value& right) {
  if (!is_numeric(left) || !is_numeric(right)) refuse(name, "two numbers");
  const bool whole = is_whole(left) && is_whole(right);
  if (whole && name != "/" && name != "**") return whole_arithmetic(name, whole_of(left), whole_of(right));
  const double a = number_of(left);
  const double b = number_of(right);
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "**") return whole && b >= 0 ? Value(std::llround(std::pow(a, b))) : Value(std::pow(a, b));
  if (b == 0) refuse(name, "a divisor that is not zero");
  if (name == "/") return a / b;
  return name == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

Value sum_of(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return left.get<std::string>() + right.get<std::string>();
  if (left.is_array() && right.is_array()) {
    Value list = left;
    for (const Value& item : right) list.push_back(item);
    return list;
  }
  if (is_numeric(left) && is_numeric(right)) return arithmetic("+", left, right);
  refuse("+", "two texts, two lists or two numbers; '~' joins anything");
}

bool contains(const Value& container, const Value& item) {
  if (container.is_discarded()) return false;
  if (container.is_string()) {
    if (!item.is_string()) refuse("in", "a text to look for in a text");
    return container.get_ref<const std::string&>().find(item.get_ref<const std::string&>()) != std::string::npos;
  }
  if (container.is_object()) return item.is_string() && container.contains(item.get<std::string>());
  if (!container.is_array()) refuse("in", "a list, a mapping or a text");
  return std::find(container.begin(), container.end(), item) != container.end();
}

bool same(const Value& left, const Value& right) {
  return (left.is_discarded() && right.is_discarded()) || left == right;
}

bool ordered(const std::string& name, const Value& left, const Value& right) {
  const bool comparable = (left.is_string() && right.is_string()) || (is_numeric(left) && is_numeric(right));
  if (!comparable) refuse(name, "two numbers or two texts");
  const Value a = is_numeric(left) ? Value(number_of(left)) : left;
  const Value b = is_numeric(right) ? Value(number_of(right)) : right;
  if (name == "<") return a < b;
  if (name == ">") return b < a;
  return name == "<=" ? !(b < a) : !(a < b);
}

// Returns the elements of a list, or the characters of a text.
std::vector<Value> sequence_of(const Value& object) {
  if (object.is_array()) return {object.begin(), object.end()};
  std::vector<Value> list;
  if (!object.is_string()) throw std::invalid_argument("a slice needs a list or a text");
  for (std::string& c : characters_of(object.get_ref<const std::string&>())) list.emplace_back(std::move(c));
  return list;
}

// Returns a bound of a slice from 0 to `size`, or from -1 to size - 1 where the step is negative.
int64_t bound_of(const Value& value, int64_t absent, int64_t size, bool backward) {
  if (!value.is_number_integer()) return absent;
  int64_t bound = value.get<int64_t>();
  if (bound < 0) bound += size;
  return backward ? std::clamp<int64_t>(bound, -1, size - 1) : std::clamp<int64_t>(bound, 0, size);
}

}  // namespace

Value apply_operator(const std::string& name, const Value& left, const Value& right) {
  if (name == "==") return same(left, right);
  if (name == "!=") return !same(left, right);
  if (name == "in") return contains(right, left);
  if (name == "~") return text_of_value(left) + text_of_value(right);
  if (name == "+") return sum_of(left, right);
  if (name == "<" || name == ">" || name == "<=" || name == ">=") return ordered(name, left, right);
  return arithmetic(name, left, right);
}

Value apply_sign(const std::string& name, const Value& value) {
  if (!is_numeric(value)) refuse(name, "a number");
  if (name == "+") return value;
  return is_whole(value) ? Value(-whole_of(value)) : Value(-number_of(value));
}

Value element_of(const Value& object, const Value& index) {
  const Value undefined(Value::value_t::discarded);
  if (object.is_object()) {
    if (!index.is_string()) return undefined;
    const auto found = object.find(index.get<std::string>());
    return found == object.end() ? undefined : *found;
  }
  if (!index.is_number_integer() || !(object.is_array() || object.is_string())) {
    if (object.is_array() || object.is_string()) return undefined;
    throw std::invalid_argument("only lists, mappings and texts have elements");
  }
  const std::vector<Value> list = sequence_of(object);
  const int64_t place = index.get<int64_t>() + (index.get<int64_t>() < 0 ? std::ssize(list) : 0);
  return place < 0 || place >= std::ssize(list) ? undefined : list[static_cast<size_t>(place)];
}

Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step) {
  const std::vector<Value> list = sequence_of(object);
  const int64_t stride = step.is_number_integer() ? step.get<int64_t>() : 1;
  if (stride == 0) throw std::invalid_argument("a slice needs a step that is not zero");
  const int64_t size = std::ssize(list);
  const bool backward = stride < 0;
  const int64_t first = bound_of(begin, backward ? size - 1 : 0, size, backward);
  const int64_t last = bound_of(end, backward ? -1 : size, size, backward);
  Value chosen = Value::array();
  std::string text;
  for (int64_t i = first; backward ? i > last : i < last; i += stride) {
    const Value& one = list[static_cast<size_t>(i)];
    if (object.is_string()) {
      text += one.get<std::string>();
    } else {
      chosen.push_back(one);
    }
  }
  return object.is_string() ? Value(text) : chosen;
}

}  // namespace draftsmith::data
