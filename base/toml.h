// TOML files with errors that name file, line and column, and `--set a.b=c` overlays on them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "base/error.h"

namespace draftsmith {

// Reads a TOML file (at most 16 MB). Throws UserError naming file:line:column.
toml::table load_toml(const std::filesystem::path& file);

// The same for text in memory; `source_name` stands in for the file's name in errors.
toml::table parse_toml(std::string_view text, const std::string& source_name);

// "file:line" of a node, "--set a.b=c" for an overlaid one, empty when the node has no source.
std::string location_of(const toml::node& node);

// Applies one `a.b.c=value` to `root`. The value is read as TOML (1e-4, true, [1, 2], "text"); what is not a TOML value
// is taken as a bare string. Path components are keys of nested tables, created where missing, or, in an array of
// tables, the `name` of one element or its index. When the first component is no key of `root`, it is looked for in the
// tables (or arrays of tables) of `root` named in `search_in`: with {"stage"}, `train.steps=5` means
// `stage.train.steps=5`. Malformed assignments become problems; keys nobody knows become problems when the table is
// parsed.
void apply_overlay(toml::table& root, const std::string& assignment, const std::vector<std::string>& search_in,
                   Problems& problems);

// All of several assignments, in order.
void apply_overlays(toml::table& root, const std::vector<std::string>& assignments,
                    const std::vector<std::string>& search_in, Problems& problems);

// `text` as a TOML basic string with its quotes.
std::string toml_quoted(std::string_view text);

// `key` as it must be written in TOML: bare where possible, else quoted.
std::string toml_key(std::string_view key);

}  // namespace draftsmith
