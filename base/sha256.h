// SHA-256 by OpenSSL, which uses the processor's instructions, for the hashes in corpora, stages and model manifests.
#pragma once

#include <filesystem>
#include <memory>
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

}  // namespace draftsmith
