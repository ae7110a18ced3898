// Reads the lines of a text file and counts CR LF ends and byte order marks. All readers use it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <string>

namespace draftsmith::data {

class LineReader {
 public:
  // Errors: UserError for a missing or unreadable file or a directory.
  explicit LineReader(const std::filesystem::path& file);
  // Reads a stream that others own and that outlives the reader; `name` stands for the file in messages.
  LineReader(std::istream& stream, const std::string& name);
  // Reads the next line without its end (LF or CR LF, optional for the last line). Returns false at the end of the
  // file. Errors: UserError for a line longer than kMaxLineBytes, which most likely means a binary file.
  bool next(std::string& line);
  // Returns the number of the last line read, from 1.
  int64_t line() const { return line_; }
  // Returns file:line of the last line read.
  std::string where() const;
  int64_t crlf_lines() const { return crlf_lines_; }
  bool had_byte_order_mark() const { return byte_order_mark_; }
  const std::filesystem::path& file() const { return file_; }

  static constexpr size_t kMaxLineBytes = size_t{256} << 20;

 private:
  void begin();
  bool fill();
  std::filesystem::path file_;
  std::unique_ptr<std::istream> owned_;
  std::istream* input_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t line_ = 0;
  int64_t crlf_lines_ = 0;
  bool byte_order_mark_ = false;
};

// Returns a reader of a file, or of standard input where `file` is "-". /dev/stdin would do, but a container's user may
// not open it. Errors: as the reader's.
LineReader open_lines(const std::string& file);

// Returns the number of lines of a file, for a progress bar; 0 if the file cannot be read.
int64_t count_lines(const std::filesystem::path& file);

// Throws a UserError for a line with invalid UTF-8 that names file:line, the byte's offset in the line and its value.
[[noreturn]] void throw_invalid_utf8(const std::string& where, const std::string& line, size_t at);

}  // namespace draftsmith::data
