#include "evaluate/report/run_table.h"

#include <algorithm>

#include "base/utf8.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kGap = 2;             // of TextTable
constexpr size_t kNarrowestName = 20;  // columns, whatever the numbers take
constexpr const char* kIndent = "  ";  // of a name's second piece

// What the numbers leave for the names of runs.
size_t name_width(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  size_t numbers = 0;
  for (size_t i = 1; i < columns.size(); ++i) {
    size_t widest = display_width(columns[i].header);
    for (const auto& row : rows) widest = std::max(widest, display_width(row[i]));
    numbers += kGap + widest;
  }
  return std::max(kNarrowestName, kResultsWidth - std::min(numbers, kResultsWidth));
}

// The last '.' before `end` that is not a decimal point, or npos.
size_t last_break(const std::string& name, size_t end) {
  const auto is_digit = [&](size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  size_t dot = name.rfind('.', end - 1);
  while (dot != std::string::npos && dot > 0 && is_digit(dot - 1) && is_digit(dot + 1)) dot = name.rfind('.', dot - 1);
  return dot;
}

// A name in pieces that fit, broken behind a '.' where there is one: what tells grids apart stands at its end. Names
// are ASCII (file_safe).
std::vector<std::string> name_pieces(std::string name, size_t width) {
  std::vector<std::string> pieces;
  while (name.size() > width) {
    const size_t dot = last_break(name, width);
    const bool found = dot != std::string::npos && dot > std::string(kIndent).size();
    const size_t end = found ? dot + 1 : width;
    pieces.push_back(name.substr(0, end));
    name = kIndent + name.substr(end);
  }
  pieces.push_back(std::move(name));
  return pieces;
}

// A row, its name on as many lines as it takes.
void add_named_row(TextTable& table, std::vector<std::string> row, size_t width) {
  for (std::string& piece : name_pieces(row.front(), width)) {
    row.front() = std::move(piece);
    table.add_row(row);
    std::fill(row.begin(), row.end(), std::string());
  }
}

void drop_empty(std::vector<Column>& columns, std::vector<std::vector<std::string>>& rows) {
  for (size_t i = columns.size(); i-- > 1;) {
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return !row[i].empty(); })) continue;
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

std::string run_table(std::vector<Column> columns, std::vector<std::vector<std::string>> rows,
                      const SettingTableStyle& style) {
  drop_empty(columns, rows);
  const size_t width = name_width(columns, rows);
  TextTable table(columns, kResultsWidth);
  for (size_t i = 0; i < rows.size(); ++i) {
    add_named_row(table, rows[i], width);
    if (i == 0 && style.baseline) table.add_rule();
  }
  return table.str();
}

std::string wrapped(const std::string& text, size_t width) {
  std::string lines;
  std::string line;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines += line + "\n";
      line = std::string(kIndent) + kIndent + word;
    } else {
      line += (begin == 0 ? "" : " ") + word;
    }
    begin = end + 1;
  }
  return lines + line + "\n";
}

std::string fixed(const nlohmann::ordered_json& value, int digits) {
  return value.is_number() ? fmt::format("{:.{}f}", value.get<double>(), digits) : "";
}

}  // namespace draftsmith::evaluate
