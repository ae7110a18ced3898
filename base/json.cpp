#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "base/files.h"

namespace draftsmith {
namespace {

using nlohmann::json;

constexpr const char* kUnusable = "has an unusable value";

std::string place(const std::string& source_name, std::string_view text, size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return fmt::format("{}:{}", source_name, 1 + std::count(text.begin(), end, '\n'));
}

// Returns nlohmann's message without its head "[json.exception...] parse error at line 1, column 2: ".
std::string bare_message(const std::string& message) {
  const size_t column = message.find("column ");
  const size_t colon = message.find(": ", column == std::string::npos ? 0 : column);
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

std::string range_text(IntRange range) {
  const bool low = range.min != std::numeric_limits<int64_t>::min();
  const bool high = range.max != std::numeric_limits<int64_t>::max();
  if (low && high) return fmt::format("an integer in {} to {}", range.min, range.max);
  if (low) return fmt::format("an integer of at least {}", range.min);
  if (high) return fmt::format("an integer of at most {}", range.max);
  return "an integer";
}

// Returns the value if it is an integer that fits into int64.
std::optional<int64_t> integer(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

}  // namespace

json parse_json(std::string_view text, const std::string& source_name) {
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> keys;  // of the objects around a place
  // Refuses deep nesting and a key given twice, which the parser accepts.
  const auto guard = [&](int depth, json::parse_event_t event, json& parsed) {
    const bool object = event == json::parse_event_t::object_start;
    if ((object || event == json::parse_event_t::array_start) && depth >= kMaxDepth) {
      throw UserError({source_name, "JSON is nested too deeply", fmt::format("at most {}", kMaxDepth), "more", ""});
    }
    if (object) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw UserError(
          {source_name, "the JSON key " + brief(parsed) + " is given twice in one object", "each key once", "", ""});
    }
    return true;
  };
  try {
    return json::parse(text, guard);
  } catch (const json::parse_error& error) {
    throw UserError(
        {place(source_name, text, error.byte), "not valid JSON: " + bare_message(error.what()), "", "", ""});
  } catch (const json::exception& error) {
    throw UserError({source_name, "not usable JSON: " + std::string(error.what()), "", "", ""});
  }
}

json load_json(const std::filesystem::path& file, uint64_t max_bytes) {
  return parse_json(read_file(file, max_bytes), file.string());
}

void write_json(const std::filesystem::path& file, const nlohmann::ordered_json& value) {
  write_file_atomic(file, value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string brief(const json& value, size_t width) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > width) text = text.substr(0, width - 3) + "...";
  return text;
}

JsonReader::JsonReader(const json& object, std::string where, Problems& problems)
    : object_(object), where_(std::move(where)), problems_(problems) {
  if (!object.is_object()) problems.add({where_, "is not what it should be", "a JSON object", brief(object), ""});
}

bool JsonReader::has(const std::string& key) const {
  return object_.is_object() && object_.contains(key) && !object_.at(key).is_null();
}

const json* JsonReader::find(const std::string& key, bool required) {
  if (has(key)) return &object_.at(key);
  // The constructor has reported a value that is not an object.
  if (required && object_.is_object()) {
    problems_.add({where_, fmt::format("the key '{}' is missing", key), "", "", ""});
  }
  return nullptr;
}

void JsonReader::wrong(const std::string& key, const std::string& what, const std::string& expected) {
  problems_.add(
      {where_, fmt::format("'{}' {}", key, what), expected, has(key) ? brief(object_.at(key)) : "nothing", ""});
}

int64_t JsonReader::get_int(const std::string& key, IntRange range, std::optional<int64_t> fallback) {
  const json* value = find(key, !fallback);
  const std::optional<int64_t> number = value ? integer(*value) : std::nullopt;
  if (number && *number >= range.min && *number <= range.max) return *number;
  if (value) wrong(key, kUnusable, range_text(range));
  return fallback.value_or(0);
}

double JsonReader::get_double(const std::string& key, std::optional<double> fallback) {
  const json* value = find(key, !fallback);
  if (value && value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  if (value) wrong(key, kUnusable, "a number");
  return fallback.value_or(0.0);
}

bool JsonReader::get_bool(const std::string& key, std::optional<bool> fallback) {
  const json* value = find(key, !fallback);
  if (value && value->is_boolean()) return value->get<bool>();
  if (value) wrong(key, kUnusable, "true or false");
  return fallback.value_or(false);
}

std::string JsonReader::get_string(const std::string& key, std::optional<std::string> fallback) {
  const json* value = find(key, !fallback);
  if (value && value->is_string()) return value->get<std::string>();
  if (value) wrong(key, kUnusable, "a string");
  return fallback.value_or("");
}

std::vector<int64_t> JsonReader::get_ints(const std::string& key, IntRange range) {
  const json* value = find(key, false);
  if (!value) return {};
  std::vector<int64_t> numbers;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& element : list) {
    const std::optional<int64_t> number = integer(element);
    if (!number || *number < range.min || *number > range.max) {
      wrong(key, kUnusable, range_text(range) + " or a list of them");
      return {};
    }
    numbers.push_back(*number);
  }
  return numbers;
}

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string exact_text(double number) {
  return fmt::format("{}", number);
}

double exact_number(const json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);  // std::stod() refuses numbers near 0
}

}  // namespace draftsmith
