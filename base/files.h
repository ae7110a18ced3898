// Files that are either complete or absent: they are written under a temporary name in the same directory, synced, then
// renamed. A failed write (a full disk) is a RunError that names the file and its bytes; a bad path is a UserError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sha256.h"

namespace draftsmith {

// Temporary name beside `final_path`, for libraries that open files by name (HDF5). Destruction without commit()
// removes the temporary file or directory and leaves `final_path` as it was.
class AtomicPath {
 public:
  // Throws UserError if the parent directory does not exist or `final_path` is a device, a pipe or a socket.
  explicit AtomicPath(std::filesystem::path final_path);
  ~AtomicPath();
  AtomicPath(const AtomicPath&) = delete;
  AtomicPath& operator=(const AtomicPath&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  const std::filesystem::path& final_path() const { return final_; }

  // Syncs the temporary file (but not the files inside a temporary directory) and renames it to final_path, replacing
  // an existing file. Throws RunError.
  void commit();

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

// File that is written in pieces and appears under its name on commit().
class AtomicFile {
 public:
  // Throws UserError if the file cannot be created.
  explicit AtomicFile(std::filesystem::path final_path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends bytes. Throws a RunError with the file and the bytes written so far if the disk is full or fails.
  void write(std::string_view bytes);
  void write(const void* data, size_t bytes) { write(std::string_view(static_cast<const char*>(data), bytes)); }
  void commit();

 private:
  AtomicPath path_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
};

void write_file_atomic(const std::filesystem::path& file, std::string_view content);

// Returns the whole content of a file. Throws UserError if the file does not exist, is not a regular file, cannot be
// read or is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// Creates a directory and its parents. Throws a UserError with the path and the reason.
void make_directories(const std::filesystem::path& directory);

// Renames a finished directory or file and syncs the parent directory. Throws RunError, also if `to` exists.
void rename_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes `link` a relative symbolic link to its sibling `target`, replacing an existing link atomically. Throws
// RunError, also if `link` is a real file or directory.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

// Returns the bytes that an ordinary user may still write to the file system of `path` or its nearest parent.
uint64_t disk_free(const std::filesystem::path& path);

// Returns a size as text: "1.4 GB", "27.9 MB", "12 bytes".
std::string human_bytes(uint64_t bytes);

// Directory whose destruction removes it with all its content.
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
