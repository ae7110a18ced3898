// Text files that tests write, and lines of text that they read.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace draftsmith {

// Writes a file without syncing it, and returns its path.
inline std::filesystem::path write_text(const std::filesystem::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

// Returns the lines of a text, without their newlines.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns the columns that the widest line of a text takes on a terminal.
inline size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (const std::string& line : lines_of(text)) widest = std::max(widest, display_width(line));
  return widest;
}

}  // namespace draftsmith
