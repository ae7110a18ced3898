#include "base/sha256.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/error.h"
#include "base/signals.h"

namespace draftsmith {
namespace {

EVP_MD_CTX* of(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

void require(bool done) {
  if (!done) throw std::runtime_error("OpenSSL cannot compute a SHA-256");
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* context) { EVP_MD_CTX_free(of(context)); }) {
  require(context_ != nullptr && EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::string_view bytes) {
  require(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex_digest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(of(context_.get()), digest.data(), &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

std::string sha256_file(const std::filesystem::path& file) {
  const auto failed = [&] {
    return UserError({file.string(), "the file cannot be read", "", std::strerror(errno), ""});
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"), std::fclose);
  if (!stream) throw failed();
  std::vector<char> buffer(1 << 20);
  Sha256 hash;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), stream.get())) {
    work_point();
    hash.update({buffer.data(), count});
  }
  if (std::ferror(stream.get())) throw failed();
  return hash.hex_digest();
}

std::string RememberedHashes::of(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) return sha256_file(file);  // says what is wrong
  const fs::file_time_type changed = fs::last_write_time(path);
  const Known now{fs::file_size(path), changed.time_since_epoch().count()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(path.string());
    if (found != known_.end() && found->second.size == now.size && found->second.changed == now.changed) {
      return found->second.sha256;
    }
  }
  const bool settled = fs::file_time_type::clock::now() - changed > std::chrono::seconds(2);
  std::string hash = sha256_file(path);
  if (!settled) return hash;
  const std::lock_guard lock(mutex_);
  known_[path.string()] = {now.size, now.changed, hash};
  return hash;
}

}  // namespace draftsmith
