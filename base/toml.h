// TOML files with errors that name file, line and column, and `--set a.b=c` overlays on them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "base/error.h"

namespace draftsmith {

// Reads a TOML file of at most 16 MB. Throws a UserError with file:line:column.
toml::table load_toml(const std::filesystem::path& file);

// Like load_toml(), for text in memory. Errors name `source_name` as the file.
toml::table parse_toml(std::string_view text, const std::string& source_name);

// Returns "file:line" of a node, "--set a.b=c" if an overlay set it, empty if its source is unknown.
std::string location_of(const toml::node& node);

// Calls visit(value) on every string of a node, those of nested arrays and tables included.
template <class Node, class Visit>
void for_each_string(Node& node, const Visit& visit) {
  if (auto* table = node.as_table()) {
    for (auto&& [key, value] : *table) for_each_string(value, visit);
  } else if (auto* array = node.as_array()) {
    for (auto&& value : *array) for_each_string(value, visit);
  } else if (auto* text = node.as_string()) {
    visit(*text);
  }
}

// Returns a table {value = ...} of a text: TOML (1e-4, true, [1, 2], "text") or, if it is not valid TOML, a bare
// string. Its nodes have the source of that name; empty: none. Throws toml::parse_error for a broken list, table or
// quoted string.
toml::table toml_value(std::string_view text, const std::string& source_name);

// Applies assignments `a.b.c=value` to `root` in their order. A value is read by toml_value(). A path component is the
// key of a nested table, which is created if missing. In an array of tables it is the `name` or the index of one
// element. Adds a problem for a malformed assignment; unknown keys are found when the table is parsed.
void apply_overlays(toml::table& root, const std::vector<std::string>& assignments, Problems& problems);

// Returns `text` as a TOML basic string with quotes.
std::string toml_quoted(std::string_view text);

}  // namespace draftsmith
