#include "base/toml.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/files.h"
#include "base/utf8.h"
#include "base/util.h"

namespace draftsmith {
namespace {

constexpr std::string_view kOverlayPrefix = "--set ";
constexpr uint64_t kLargestToml = 16'000'000;
constexpr size_t kMostParts = 32;  // of a key

// Returns the components of a dotted path, empty if it is malformed or has too many. Quoted components may contain
// dots.
std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts(1);
  char quote = 0;
  for (const char c : path) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        parts.back() += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  const bool malformed = quote != 0 || parts.size() > kMostParts ||
                         std::any_of(parts.begin(), parts.end(), [](auto& part) { return part.empty(); });
  return malformed ? std::vector<std::string>{} : parts;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// Returns the name of a list's table; a suite's task may be named by its data set.
std::optional<std::string> name_of(const toml::node& element) {
  const toml::table* table = element.as_table();
  if (table == nullptr) return std::nullopt;
  return (*table)[table->contains("name") ? "name" : "dataset"].value<std::string>();
}

toml::node* element_of(toml::array& array, const std::string& component) {
  for (toml::node& element : array) {
    if (name_of(element) == component) return &element;
  }
  const auto index = parse_whole<size_t>(component);
  return index ? array.get(*index) : nullptr;
}

toml::node* child_of(toml::node& node, const std::string& component) {
  if (toml::table* table = node.as_table()) return table->get(component);
  if (toml::array* array = node.as_array()) return element_of(*array, component);
  return nullptr;
}

std::vector<std::string> names_in(const toml::node& node) {
  std::vector<std::string> names;
  if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table) names.emplace_back(key.str());
  } else if (const toml::array* array = node.as_array()) {
    for (const toml::node& element : *array) {
      if (const auto name = name_of(element)) names.push_back(*name);
    }
  }
  return names;
}

// Returns a hint with the key that `component` may be a misspelling of.
std::string suggestion(const toml::node& node, const std::string& component) {
  const std::vector<std::string> known = names_in(node);
  const std::string near = nearest(component, known);
  if (!near.empty()) return "did you mean '" + near + "'?";
  return known.empty() ? "" : fmt::format("known here: {}", fmt::join(known, ", "));
}

// Applies one assignment.
void apply_overlay(toml::table& root, const std::string& assignment, Problems& problems) {
  const std::string where = std::string(kOverlayPrefix) + assignment;
  const size_t equals = assignment.find('=');
  const std::string_view left = trimmed(std::string_view(assignment).substr(0, std::min(equals, assignment.size())));
  const std::vector<std::string> parts = split_path(left);
  if (equals == std::string::npos || parts.empty()) {
    problems.add({where, "malformed assignment", "path.to.key=value", assignment, "for example --set train.steps=500"});
    return;
  }
  const std::string text(std::string_view(assignment).substr(equals + 1));
  toml::table parsed;
  try {
    parsed = toml_value(text, where);
  } catch (const toml::parse_error& error) {
    problems.add({where, "the value is not valid TOML: " + std::string(error.description()),
                  "a number, true, false, \"text\", [list] or bare text", std::string(trimmed(text)), ""});
    return;
  }
  toml::node* node = &root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    toml::node* next = child_of(*node, parts[i]);
    // Missing nested tables are created, but an unknown first component is a misspelt stage.
    if (!next && node->is_table() && i > 0) {
      next = &node->as_table()->insert_or_assign(parts[i], toml::table{}).first->second;
    }
    if (!next || !(next->is_table() || next->is_array())) {
      problems.add({where, "there is no table '" + parts[i] + "'", "", "", suggestion(*node, parts[i])});
      return;
    }
    node = next;
  }
  if (!node->is_table()) {
    problems.add({where, "'" + parts[parts.size() - 2] + "' is an array, not a table", "", "",
                  "name one of its elements: " + suggestion(*node, parts.back())});
    return;
  }
  parsed.get("value")->visit([&](auto& value) { node->as_table()->insert_or_assign(parts.back(), std::move(value)); });
}

// Returns where the text that begins with a quote at `at` ends.
size_t end_of_text(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const std::string three(3, quote);
  const bool lines = toml.substr(at, 3) == three;
  for (at += lines ? 3 : 1; at < toml.size(); ++at) {
    if (quote == '"' && toml[at] == '\\') {
      ++at;
    } else if (!lines && (toml[at] == quote || toml[at] == '\n')) {
      return at + 1;
    } else if (lines && toml.substr(at, 3) == three) {
      return std::min(toml.find_first_not_of(quote, at), at + 5);  // quotes before the last three belong to the text
    }
  }
  return toml.size();
}

// Refuses keys of so many parts that the tables in them, one in another, would not fit the stack.
void require_short_keys(std::string_view toml, const std::string& source_name) {
  size_t parts = 1;
  for (size_t at = 0; at < toml.size();) {
    const auto c = static_cast<unsigned char>(toml[at]);
    if (c == '"' || c == '\'') {
      at = end_of_text(toml, at);
    } else if (c == '#') {
      at = std::min(toml.find('\n', at), toml.size());
    } else {
      if (c == '.') ++parts;
      if (c != '.' && std::isalnum(c) == 0 && std::string_view("_- \t").find(toml[at]) == std::string_view::npos) {
        parts = 1;
      }
      ++at;
    }
    if (parts <= kMostParts) continue;
    const auto line = 1 + std::count(toml.begin(), toml.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw UserError({fmt::format("{}:{}", source_name, line), "a key has too many parts",
                     fmt::format("at most {} names with dots between them", kMostParts), "more", ""});
  }
}

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& source_name) {
  if (const auto bad = invalid_utf8_offset(text)) {
    throw UserError({source_name, "not valid UTF-8 (byte offset " + std::to_string(*bad) + ")", "UTF-8 text", "", ""});
  }
  try {
    require_short_keys(text, source_name);
    return toml::parse(text, source_name);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    const std::string_view words = error.description();
    throw UserError({source_name + ":" + std::to_string(at.line) + ":" + std::to_string(at.column),
                     "not valid TOML: " + std::string(words.substr(0, words.find('\n'))), "", "", ""});
  }
}

toml::table load_toml(const std::filesystem::path& file) {
  return parse_toml(read_file(file, kLargestToml), file.string());
}

std::string location_of(const toml::node& node) {
  const toml::source_region& source = node.source();
  if (!source.path || source.path->empty()) return "";
  if (source.path->starts_with(kOverlayPrefix)) return *source.path;
  return *source.path + ":" + std::to_string(source.begin.line);
}

void apply_overlays(toml::table& root, const std::vector<std::string>& assignments, Problems& problems) {
  for (const std::string& assignment : assignments) apply_overlay(root, assignment, problems);
}

toml::table toml_value(std::string_view text, const std::string& source_name) {
  const std::string_view value = trimmed(text);
  require_short_keys(value, source_name);
  try {
    if (!value.empty() && value.find('\n') == std::string_view::npos) {
      return toml::parse("value = " + std::string(value), source_name);
    }
  } catch (const toml::parse_error&) {
    if (std::string_view("\"'[{").find(value.front()) != std::string_view::npos) throw;
  }
  const auto number = value.find('.') != value.npos ? parse_whole<double>(value) : std::nullopt;  // .5 and 1.
  return toml::parse("value = " + (number ? fmt::format("{}", *number) : toml_quoted(value)), source_name);
}

std::string toml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += c == '\n' ? "\\n" : c == '\t' ? "\\t" : fmt::format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace draftsmith
