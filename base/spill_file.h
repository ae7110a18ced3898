// Collects values on disk and maps them into memory at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/error.h"
#include "base/mapped_file.h"

namespace draftsmith {

template <class T>
class SpillFile {
 public:
  explicit SpillFile(const std::filesystem::path& file) : file_(file), stream_(file, std::ios::binary) { check(); }

  void add(T value) { add(std::span<const T>(&value, 1)); }
  void add(std::span<const T> values) {
    stream_.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
    count_ += static_cast<int64_t>(values.size());
  }
  int64_t count() const { return count_; }
  // Closes the file. Errors: RunError if a value could not be written.
  void close() {
    stream_.close();
    check();
  }
  // Maps all values, after close().
  MappedFile map() const { return MappedFile(file_); }

 private:
  void check() const {
    if (stream_) return;
    throw RunError({.where = file_.string(),
                    .what = "a temporary file cannot be written",
                    .hint = "check free space and write permission there"});
  }

  std::filesystem::path file_;
  std::ofstream stream_;
  int64_t count_ = 0;
};

// Returns the values of a mapped file that holds only values of T.
template <class T>
std::span<const T> all_values(const MappedFile& mapping) {
  return mapping.values<T>(0, mapping.bytes() / static_cast<int64_t>(sizeof(T)));
}

}  // namespace draftsmith
