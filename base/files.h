// Files: reading with limits, atomic writes, folders, files mapped into memory, values kept on disk, and SHA-256.
//
// Files that are written are either complete or absent: they are written under a temporary name in the same directory,
// synced, then renamed. A failed write (a full disk) is a RunError that names the file and its bytes; a bad path is a
// UserError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.h"

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

// Returns the whole content of a file. Throws UserError if the file does not exist, is a directory, cannot be read or
// is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// Creates a directory and its parents. Throws a UserError with the path and the reason.
void make_directories(const std::filesystem::path& directory);

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
  explicit TemporaryDirectory(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Lock on a file from construction to destruction, so that one run at a time works where the file is. The file is made
// if need be, and stays. The system releases the lock when the process ends; some file systems have no locks.
class FileLock {
 public:
  // Errors: UserError if another run has the lock, with the flag that names another directory, or for a bad path.
  FileLock(const std::filesystem::path& file, const std::string& flag);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

// File mapped as read-only memory: pages are read when they are touched and dropped when memory gets scarce.
class MappedFile {
 public:
  MappedFile() = default;
  // Errors: UserError if the file is absent, not a regular file or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& file);

  // Returns `count` values from byte `offset` on, valid as long as a copy of this mapping. Throws std::out_of_range
  // outside the file and for an offset that is not a multiple of a value's size.
  template <class T>
  std::span<const T> values(int64_t offset, int64_t count) const {
    if (count == 0) return {};
    const auto size = static_cast<int64_t>(sizeof(T));
    if (offset < 0 || count < 0 || offset > bytes_ || count > (bytes_ - offset) / size || offset % size != 0) {
      throw std::out_of_range("values outside a mapped file");
    }
    return {reinterpret_cast<const T*>(data_.get() + offset), static_cast<size_t>(count)};
  }
  int64_t bytes() const { return bytes_; }
  // The first byte, valid as long as a copy of this mapping or of this pointer; null for an empty file.
  const std::shared_ptr<const char>& data() const { return data_; }
  // Starts reading the whole file into the system's cache. Waits where the device cannot keep up with the requests.
  void will_need() const;
  // Drops the touched pages; later uses read them again from the file or the system's cache.
  void forget_pages() const;

 private:
  std::shared_ptr<const char> data_;
  int64_t bytes_ = 0;
};

// Collects values on disk and maps them into memory at the end.
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

// ---- Hashes

// Hash computed in pieces: call update any number of times, then hex_digest once.
class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // Returns the digest of all bytes so far as 64 lower-case hex digits. The object cannot be used afterwards.
  std::string hex_digest();

 private:
  std::unique_ptr<void, void (*)(void*)> context_;
};

std::string sha256(std::string_view bytes);

// Returns the hash of a file's content, read in pieces. Throws UserError if the file cannot be read.
std::string sha256_file(const std::filesystem::path& file);

// Hashes of files, remembered by size and time of change, so that large files are read once.
class RememberedHashes {
 public:
  // Returns the SHA-256 of a file's content as 64 hex digits: the remembered one if size and time are those of then.
  // Only a file that was already old when it was read is remembered: one that changed a moment ago may change again
  // within the same tick of the file system's clock. Any thread. Errors: UserError if the file cannot be read.
  std::string of(const std::filesystem::path& file);

 private:
  struct Known {
    uint64_t size = 0;
    int64_t changed = 0;  // ticks of the file system's clock
    std::string sha256{};
  };

  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by canonical path
};

}  // namespace draftsmith
