// Tables for the console: columns aligned by display width (UTF-8), numbers to the right, never wider than the limit.
#pragma once

#include <string>
#include <vector>

namespace draftsmith {

enum class Align { kLeft, kRight };

struct Column {
  std::string header;
  Align align = Align::kRight;
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns, size_t max_width = 100);

  // One cell a column; throws std::logic_error for another number of cells.
  void add_row(std::vector<std::string> cells);
  // A horizontal line between the rows before and after.
  void add_rule();

  // The table with a trailing newline. When it would be wider than the limit, the widest left-aligned columns are cut
  // (the cut shown by an ellipsis), but never below 8 columns; numbers are never cut.
  std::string str() const;

 private:
  std::vector<size_t> widths() const;

  std::vector<Column> columns_;
  size_t max_width_;
  std::vector<std::vector<std::string>> rows_;  // a rule is an empty row
};

// `text` cut to `width` display columns, ending in "…" when cut.
std::string cut_to_width(const std::string& text, size_t width);

}  // namespace draftsmith
