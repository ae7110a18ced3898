#include "model/strict_json.h"

#include <cmath>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace draftsmith::model {

namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr uintmax_t kMaxFileBytes = uintmax_t{16} << 20;

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

std::string range_text(int64_t least, int64_t most) {
  return most == std::numeric_limits<int64_t>::max() ? fmt::format("an integer, at least {}", least)
                                                     : fmt::format("an integer in {}..{}", least, most);
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > kLongest) {
    out += "...";
  }
  return out;
}

json parse_json(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> open_objects;
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw UserError({.where = where, .what = what, .expected = {}, .found = {}, .hint = hint});
  };
  const json::parser_callback_t check = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (depth > kMaxDepth) {
      refuse(fmt::format("JSON is nested deeper than {} levels", kMaxDepth),
             "the file is damaged or not what it claims to be");
    }
    if (event == Event::object_start) {
      open_objects.emplace_back();
    } else if (event == Event::object_end) {
      open_objects.pop_back();
    } else if (event == Event::key && !open_objects.back().insert(parsed.get_ref<const std::string&>()).second) {
      refuse("the key '" + printable(parsed.get_ref<const std::string&>()) + "' appears twice in one JSON object", {});
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    throw UserError({.where = where,
                     .what = "this is not valid JSON",
                     .expected = {},
                     .found = printable(error.what()),
                     .hint = "the file is damaged or was cut short; fetch or write it again"});
  }
}

json read_json_object(const std::filesystem::path& file) {
  std::error_code status;
  const auto bytes = std::filesystem::file_size(file, status);
  if (status) {
    throw UserError({.where = file.string(),
                     .what = "cannot read this file",
                     .expected = "a JSON file",
                     .found = status.message(),
                     .hint = {}});
  }
  if (bytes > kMaxFileBytes) {
    throw UserError({.where = file.string(),
                     .what = "JSON file is absurdly large",
                     .expected = fmt::format("at most {} bytes", kMaxFileBytes),
                     .found = fmt::format("{} bytes", bytes),
                     .hint = {}});
  }
  std::string text(bytes, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<size_t>(in.gcount()));
  json value = parse_json(text, file.string());
  if (!value.is_object()) {
    throw UserError({.where = file.string(),
                     .what = "the top level of this file must be a JSON object",
                     .expected = "an object, { ... }",
                     .found = value.type_name(),
                     .hint = {}});
  }
  return value;
}

bool ObjectReader::has(const std::string& key) const {
  const auto it = object_.find(key);
  return it != object_.end() && !it->is_null();
}

const json& ObjectReader::at(const std::string& key) const {
  return object_.at(key);
}

void ObjectReader::wrong(const std::string& key, const std::string& what, const std::string& expected) const {
  problems_.add({.where = where_ + ": " + key,
                 .what = what,
                 .expected = expected,
                 .found = has(key) ? shown(at(key)) : "nothing",
                 .hint = {}});
}

std::optional<int64_t> ObjectReader::optional_integer(const std::string& key, int64_t least, int64_t most) const {
  if (!has(key)) {
    return std::nullopt;
  }
  const json& value = at(key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    wrong(key, "value out of range or not an integer", range_text(least, most));
    return std::nullopt;
  }
  return value.get<int64_t>();
}

int64_t ObjectReader::integer(const std::string& key, int64_t fallback, int64_t least, int64_t most) const {
  return optional_integer(key, least, most).value_or(fallback);
}

int64_t ObjectReader::required_integer(const std::string& key, int64_t least, int64_t most) const {
  if (!has(key)) {
    wrong(key, "required key is missing", range_text(least, most));
    return least;
  }
  return integer(key, least, least, most);
}

double ObjectReader::number(const std::string& key, double fallback, double least, double most) const {
  if (!has(key)) {
    return fallback;
  }
  const json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least ||
      value.get<double>() > most) {
    wrong(key, "value out of range or not a number", fmt::format("a number in {}..{}", least, most));
    return fallback;
  }
  return value.get<double>();
}

bool ObjectReader::boolean(const std::string& key, bool fallback) const {
  if (!has(key)) {
    return fallback;
  }
  if (!at(key).is_boolean()) {
    wrong(key, "value is not a boolean", "true or false");
    return fallback;
  }
  return at(key).get<bool>();
}

std::string ObjectReader::text(const std::string& key, const std::string& fallback) const {
  if (!has(key)) {
    return fallback;
  }
  if (!at(key).is_string()) {
    wrong(key, "value is not a string", "a string");
    return fallback;
  }
  return at(key).get<std::string>();
}

std::vector<int64_t> ObjectReader::integers(const std::string& key, int64_t least, int64_t most) const {
  if (!has(key)) {
    return {};
  }
  const json list = at(key).is_array() ? at(key) : json::array({at(key)});
  std::vector<int64_t> values;
  for (const json& value : list) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      wrong(key, "value out of range or not an integer", range_text(least, most) + ", or a list of them");
      return {};
    }
    values.push_back(value.get<int64_t>());
  }
  return values;
}

}  // namespace draftsmith::model
