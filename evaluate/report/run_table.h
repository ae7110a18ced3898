// Tables of runs for the console: names of any length, numbers beside them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/text_table.h"

namespace draftsmith::evaluate {

// A number of results.json with so many digits behind the point; empty for anything else.
std::string fixed(const nlohmann::ordered_json& value, int digits);

// Columns that a console's tables of results take at most.
inline constexpr size_t kResultsWidth = 100;

struct SettingTableStyle {
  bool baseline = false;  // a rule below the first row
};

// The first column holds names of runs, which take several lines where they are too long. Columns that no row fills are
// left out. With a trailing newline.
std::string run_table(std::vector<Column> columns, std::vector<std::vector<std::string>> rows,
                      const SettingTableStyle& style = {});

// Text in lines of at most `width` columns, broken at blanks, each with a newline; all but the first are
// indented.
std::string wrapped(const std::string& text, size_t width);

}  // namespace draftsmith::evaluate
