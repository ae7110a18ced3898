// Tables of text: for the console (columns aligned by display width), and as HTML, CSV and Markdown.
#pragma once

#include <string>
#include <vector>

namespace draftsmith {

enum class Align { kLeft, kRight };

struct Column {
  std::string header;
  Align align = Align::kRight;
  std::string title = {};       // of HTML: shown when the pointer rests on the header
  bool best_is_lowest = false;  // of HTML: sorting begins with the lowest number
};

class Table {
 public:
  explicit Table(std::vector<Column> columns = {}) : columns_(std::move(columns)) {}

  // Adds a row. Throws std::logic_error unless there is one cell a column.
  void add_row(std::vector<std::string> cells);
  // Adds a horizontal line between the rows before and after; only text() shows it.
  void add_rule() { rows_.emplace_back(); }
  // Removes the columns, but for the first, that no row fills.
  void drop_empty_columns();
  bool empty() const { return rows_.empty(); }

  // Returns the table for the console, with a trailing newline. When it would be wider than `max_width`, long names in
  // left-aligned columns take several lines of at least 8 columns, broken behind a '.' where there is one.
  std::string text(size_t max_width = 100) const;
  // Returns a table whose left-aligned first cells head their rows. The interval behind a number, in brackets, is an
  // element of class "interval".
  std::string html() const;
  // Returns lines of cells; those with a comma, a quote or a newline are quoted (RFC 4180).
  std::string csv() const;
  std::string markdown() const;

 private:
  std::vector<size_t> widths(size_t max_width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // a rule is an empty row
};

// Returns the text cut to `width` display columns, ending in "…" when cut.
std::string cut_to_width(const std::string& text, size_t width);

// Returns a text in lines of at most `width` columns, broken at blanks, each with a newline. The first line is indented
// by `first` columns, the others by `rest`; an empty text is an empty line.
std::string wrapped(const std::string& text, size_t width, size_t first = 0, size_t rest = 4);

// Returns the text with &, <, > and double quotes escaped for HTML. Attributes must stand in double quotes.
std::string escape_html(const std::string& text);

}  // namespace draftsmith
