// SHA-256 of texts and files, and hashes of files that are remembered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace draftsmith {

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
