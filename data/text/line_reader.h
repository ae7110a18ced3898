// Lines of one text file, with what is odd about them counted: the base of every reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace draftsmith::data {

class LineReader {
 public:
  // Errors: UserError for a file that is missing, a directory or cannot be read.
  explicit LineReader(const std::filesystem::path& file);
  // The next line without its end (LF or CR LF; the last line needs none), or false at the end of the file.
  // Errors: UserError for a line longer than kMaxLineBytes (a binary file, most likely).
  bool next(std::string& line);
  // Number of the line read last, from 1.
  int64_t line() const { return line_; }
  // file:line of the line read last.
  std::string where() const;
  int64_t crlf_lines() const { return crlf_lines_; }
  bool had_byte_order_mark() const { return byte_order_mark_; }
  const std::filesystem::path& file() const { return file_; }

  static constexpr size_t kMaxLineBytes = size_t{256} << 20;

 private:
  bool fill();
  std::filesystem::path file_;
  std::ifstream input_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t line_ = 0;
  int64_t crlf_lines_ = 0;
  bool byte_order_mark_ = false;
};

// Lines of a file, counted without looking at them: for the total of a progress bar. 0 when it cannot be read.
int64_t count_lines(const std::filesystem::path& file);

// UserError for a line that is not valid UTF-8: names file:line, the byte's offset in the line and its value.
[[noreturn]] void throw_invalid_utf8(const std::string& where, const std::string& line, size_t at);

}  // namespace draftsmith::data
