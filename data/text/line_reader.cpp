#include "data/text/line_reader.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "base/error.h"

namespace draftsmith::data {

namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

LineReader::LineReader(const std::filesystem::path& file) : file_(file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UserError({.where = file.string(), .what = "is a directory", .expected = "a text file"});
  }
  owned_ = std::make_unique<std::ifstream>(file, std::ios::binary);
  input_ = owned_.get();
  if (!*input_) {
    throw UserError({.where = file.string(), .what = "cannot be read", .expected = "a readable text file"});
  }
  begin();
}

LineReader::LineReader(std::istream& stream, const std::string& name) : file_(name), input_(&stream) {
  begin();
}

LineReader open_lines(const std::string& file) {
  return file == "-" ? LineReader(std::cin, "standard input") : LineReader(std::filesystem::path(file));
}

void LineReader::begin() {
  fill();
  if (buffer_.starts_with(kByteOrderMark)) {
    byte_order_mark_ = true;
    begin_ = kByteOrderMark.size();
  }
}

// Appends the next block of the file to the rest in the buffer. Returns false at the end.
bool LineReader::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t kept = buffer_.size();
  if (kept > kMaxLineBytes) {
    throw UserError({.where = file_.string() + ":" + std::to_string(line_ + 1),
                     .what = "line is too long",
                     .expected = "at most " + std::to_string(kMaxLineBytes) + " bytes a line",
                     .hint = "is this a text file with one example a line?"});
  }
  buffer_.resize(kept + kBlockBytes);
  input_->read(buffer_.data() + kept, static_cast<std::streamsize>(kBlockBytes));
  if (input_->bad()) throw UserError({.where = file_.string(), .what = "reading failed"});
  buffer_.resize(kept + static_cast<size_t>(input_->gcount()));
  return buffer_.size() > kept;
}

bool LineReader::next(std::string& line) {
  size_t searched = begin_;
  size_t end = buffer_.find('\n', searched);
  while (end == std::string::npos) {
    searched = buffer_.size() - begin_;
    if (!fill()) break;
    end = buffer_.find('\n', searched);
  }
  const bool terminated = end != std::string::npos;
  if (!terminated) {
    if (begin_ == buffer_.size()) return false;
    end = buffer_.size();
  }
  line.assign(buffer_, begin_, end - begin_);
  begin_ = end + (terminated ? 1 : 0);
  ++line_;
  if (line.ends_with('\r')) {
    line.pop_back();
    ++crlf_lines_;
  }
  return true;
}

std::string LineReader::where() const {
  return file_.string() + ":" + std::to_string(line_);
}

int64_t count_lines(const std::filesystem::path& file) {
  std::ifstream input(file, std::ios::binary);
  std::string block(kBlockBytes, '\0');
  int64_t lines = 0;
  char last = '\n';
  while (input.read(block.data(), static_cast<std::streamsize>(block.size())), input.gcount() > 0) {
    const auto end = block.begin() + input.gcount();
    lines += std::count(block.begin(), end, '\n');
    last = *(end - 1);
  }
  return lines + (last == '\n' ? 0 : 1);
}

void throw_invalid_utf8(const std::string& where, const std::string& line, size_t at) {
  std::array<char, 8> hex{};
  std::snprintf(hex.data(), hex.size(), "0x%02X", static_cast<unsigned>(static_cast<uint8_t>(line[at])));
  throw UserError(
      Problem{.where = where,
              .what = "invalid UTF-8",
              .expected = "text in UTF-8",
              .found = "byte " + std::string(hex.data()) + " at byte " + std::to_string(at + 1) + " of the line",
              .hint = "convert the file (iconv -f latin1 -t utf8), or choose the policy drop or replace for "
                      "invalid UTF-8"});
}

}  // namespace draftsmith::data
