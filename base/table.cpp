#include "base/table.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/utf8.h"
#include "base/util.h"

namespace draftsmith {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 8;
constexpr const char* kIndent = "  ";  // of a name's second piece

std::string padded(const std::string& text, size_t width, Align align) {
  const size_t used = display_width(text);
  const std::string blanks(width > used ? width - used : 0, ' ');
  return align == Align::kLeft ? text + blanks : blanks + text;
}

// Returns the position of the last '.' before `end` that is not a decimal point, or npos.
size_t last_break(const std::string& name, size_t end) {
  const auto is_digit = [&](size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  size_t dot = name.rfind('.', end - 1);
  while (dot != std::string::npos && dot > 0 && is_digit(dot - 1) && is_digit(dot + 1)) dot = name.rfind('.', dot - 1);
  return dot;
}

// Returns a name in pieces of at most `width` columns, at least kNarrowest.
std::vector<std::string> name_pieces(std::string name, size_t width) {
  std::vector<std::string> pieces;
  while (display_width(name) > width) {
    const size_t fits = prefix_of_width(name, width);
    const size_t dot = last_break(name, fits);
    const bool found = dot != std::string::npos && dot > std::string(kIndent).size();
    const size_t end = found ? dot + 1 : fits;
    pieces.push_back(name.substr(0, end));
    name = kIndent + name.substr(end);
  }
  pieces.push_back(std::move(name));
  return pieces;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return "\"" + replace_all(text, "\"", "\"\"") + "\"";
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += csv_cell(cell) + ",";
  if (!line.empty()) line.pop_back();
  return line + '\n';
}

// No text may end a cell.
std::string markdown_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + replace_all(replace_all(cell, "\n", " "), "|", "\\|") + " |";
  return line + "\n";
}

}  // namespace

std::string cut_to_width(const std::string& text, size_t width) {
  if (display_width(text) <= width) return text;
  return text.substr(0, prefix_of_width(text, width > 0 ? width - 1 : 0)) + "…";
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) throw std::logic_error("Table: a row needs one cell a column");
  rows_.push_back(std::move(cells));
}

void Table::drop_empty_columns() {
  for (size_t i = columns_.size(); i-- > 1;) {
    const bool filled =
        std::any_of(rows_.begin(), rows_.end(), [&](const auto& row) { return !row.empty() && !row[i].empty(); });
    if (filled) continue;
    columns_.erase(columns_.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto& row : rows_) {
      if (!row.empty()) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

std::vector<size_t> Table::widths(size_t max_width) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.header));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const auto total = [&] { return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1)); };
  while (!widths.empty() && total() > max_width) {
    size_t widest = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].align != Align::kLeft || widths[i] <= kNarrowest) continue;
      if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::text(size_t max_width) const {
  if (columns_.empty()) return "";
  const std::vector<size_t> column_widths = widths(max_width);
  const auto lines = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> pieces;  // of each cell
    size_t count = 1;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool may_break = columns_[i].align == Align::kLeft;
      pieces.push_back(may_break ? name_pieces(cells[i], column_widths[i]) : std::vector{cells[i]});
      count = std::max(count, pieces.back().size());
    }
    std::string text;
    for (size_t row = 0; row < count; ++row) {
      std::string line;
      for (size_t i = 0; i < cells.size(); ++i) {
        if (i > 0) line += std::string(kGap, ' ');
        line += padded(row < pieces[i].size() ? pieces[i][row] : "", column_widths[i], columns_[i].align);
      }
      text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  };
  const size_t width = std::accumulate(column_widths.begin(), column_widths.end(), kGap * (column_widths.size() - 1));
  const std::string rule = std::string(width, '-') + "\n";
  std::string text = lines(from_each(columns_, &Column::header)) + rule;
  for (const auto& row : rows_) text += row.empty() ? rule : lines(row);
  return text;
}

namespace {

// Returns a cell's text, with the interval behind a number as an element of its own.
std::string cell_html(const std::string& cell) {
  const size_t interval = cell.find(" [");
  if (interval == std::string::npos || !cell.ends_with(']') || cell.find_first_of("0123456789") != 0) {
    return escape_html(cell);
  }
  return escape_html(cell.substr(0, interval)) + " <span class=\"interval\">" + escape_html(cell.substr(interval + 1)) +
         "</span>";
}

// Returns the start tag of a cell. `head`: of what it heads, "row" or "col"; empty for other cells.
std::string cell_tag(const Column& column, const std::string& head, const std::string& title) {
  std::string tag = head.empty() ? "<td" : "<th scope=\"" + head + "\"";
  if (column.align == Align::kLeft) tag += " class=\"left\"";
  if (head == "col" && column.align != Align::kLeft && column.best_is_lowest) tag += " class=\"lowest\"";
  if (!title.empty()) tag += " title=\"" + escape_html(title) + "\"";
  return tag + ">";
}

}  // namespace

std::string Table::html() const {
  std::string html = "<table>\n<thead><tr>";
  for (const Column& column : columns_) {
    html += cell_tag(column, "col", column.title) + escape_html(column.header) + "</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows_) {
    if (row.empty()) continue;
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool heads = i == 0 && columns_[i].align == Align::kLeft;
      html += cell_tag(columns_[i], heads ? "row" : "", "") + cell_html(row[i]) + (heads ? "</th>" : "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string Table::csv() const {
  std::string csv = csv_line(from_each(columns_, &Column::header));
  for (const auto& row : rows_) {
    if (!row.empty()) csv += csv_line(row);
  }
  return csv;
}

std::string Table::markdown() const {
  std::string text = markdown_line(from_each(columns_, &Column::header)) + "|";
  for (const Column& column : columns_) text += column.align == Align::kLeft ? ":---|" : "---:|";
  text += "\n";
  for (const auto& row : rows_) {
    if (!row.empty()) text += markdown_line(row);
  }
  return text;
}

std::string wrapped(const std::string& text, size_t width, size_t first, size_t rest) {
  if (text.empty()) return "\n";
  std::string lines;
  std::string line(first, ' ');
  bool begun = false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (begun && display_width(line) + 1 + display_width(word) > width) {
      lines += line + "\n";
      line = std::string(rest, ' ') + word;
    } else {
      line += (begun ? " " : "") + word;
    }
    begun = true;
  }
  return lines + line + "\n";
}

std::string escape_html(const std::string& text) {
  std::string html;
  for (const char c : text) {
    html += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return html;
}

}  // namespace draftsmith
