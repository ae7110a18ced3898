// Paths of the data folder in recipes and suites: "$DATA/multi30k/val.de" is multi30k/val.de in data_folder().
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace draftsmith::data {

// Returns whether a text begins with "$DATA/".
bool is_data_path(const std::string& text);

// Returns the path that a text names: the data folder in place of "$DATA", any other text as it is.
std::string real_path(const std::string& text);

// Returns a path as recipes write it: "$DATA/..." for a file in the data folder, any other path as it is.
std::string portable_path(const std::filesystem::path& file);

// Returns the problem of a path that does not exist, as `text` in the file and line `where` names it. The problem's
// hint says what the path is relative to, or that the data folder is missing.
Problem missing_path(const std::string& text, const std::string& where);

}  // namespace draftsmith::data
