// Files that are either complete or absent: written under a temporary name in the same directory, synced, then renamed.
// A failed write says which file and how many bytes (a full disk shows up here); a bad path is the user's to correct.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sha256.h"

namespace draftsmith {

// A temporary name beside `final_path`, for writers that open files by name themselves (HDF5). Destroyed without
// commit(), the temporary file or directory is removed and `final_path` is untouched.
class AtomicPath {
 public:
  // Throws UserError when the parent directory does not exist or `final_path` is a device, a pipe or a socket.
  explicit AtomicPath(std::filesystem::path final_path);
  ~AtomicPath();
  AtomicPath(const AtomicPath&) = delete;
  AtomicPath& operator=(const AtomicPath&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  const std::filesystem::path& final_path() const { return final_; }

  // Syncs the temporary file (not the files inside a temporary directory) and renames it to final_path, replacing a
  // file that lies there. Throws RunError.
  void commit();

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

// A file written in pieces that appears under its name only on commit().
class AtomicFile {
 public:
  // Throws UserError when the file cannot be created.
  explicit AtomicFile(std::filesystem::path final_path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws RunError naming the file and the bytes written so far when the disk is full or fails.
  void write(std::string_view bytes);
  void write(const void* data, size_t bytes) { write(std::string_view(static_cast<const char*>(data), bytes)); }
  uint64_t bytes_written() const { return written_; }
  void commit();

 private:
  AtomicPath path_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
};

void write_file_atomic(const std::filesystem::path& file, std::string_view content);

// Whole content of a file. Throws UserError when it does not exist, is no regular file, cannot be read or is larger
// than `max_bytes`.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// Creates a directory and its parents. Throws UserError naming the path and the reason.
void make_directories(const std::filesystem::path& directory);

// Renames a finished directory (or file) into place, `to` must not exist, and syncs the parent directory. Throws
// RunError.
void rename_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes `link` a relative symbolic link to `target` (a sibling), replacing a link of that name atomically. Throws
// RunError; a real file or directory named `link` is never replaced.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

// Bytes that an ordinary user may still write to the file system of `path` (its nearest existing parent).
uint64_t disk_free(const std::filesystem::path& path);

// "1.4 GB", "27.9 MB", "12 bytes".
std::string human_bytes(uint64_t bytes);

// A directory that is removed with everything in it on destruction.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace draftsmith
