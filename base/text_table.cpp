#include "base/text_table.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/utf8.h"

namespace draftsmith {

namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 8;

std::string padded(const std::string& text, size_t width, Align align) {
  const size_t used = display_width(text);
  const std::string blanks(width > used ? width - used : 0, ' ');
  return align == Align::kLeft ? text + blanks : blanks + text;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string cut_to_width(const std::string& text, size_t width) {
  if (display_width(text) <= width) return text;
  return text.substr(0, prefix_of_width(text, width > 0 ? width - 1 : 0)) + "…";
}

TextTable::TextTable(std::vector<Column> columns, size_t max_width)
    : columns_(std::move(columns)), max_width_(max_width) {}

void TextTable::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) throw std::logic_error("TextTable: a row needs one cell a column");
  rows_.push_back(std::move(cells));
}

void TextTable::add_rule() {
  rows_.emplace_back();
}

std::vector<size_t> TextTable::widths() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.header));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const auto total = [&] { return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1)); };
  while (!widths.empty() && total() > max_width_) {
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

std::string TextTable::str() const {
  const std::vector<size_t> column_widths = widths();
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += std::string(kGap, ' ');
      const bool may_cut = columns_[i].align == Align::kLeft;
      const std::string cell = may_cut ? cut_to_width(cells[i], column_widths[i]) : cells[i];
      text += padded(cell, column_widths[i], columns_[i].align);
    }
    return without_trailing_blanks(text) + "\n";
  };
  std::vector<std::string> headers;
  size_t width = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    headers.push_back(columns_[i].header);
    width += column_widths[i] + (i > 0 ? kGap : 0);
  }
  const std::string rule = std::string(width, '-') + "\n";
  std::string text = line(headers) + rule;
  for (const auto& row : rows_) text += row.empty() ? rule : line(row);
  return text;
}

}  // namespace draftsmith
