#include "base/sha256.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <openssl/evp.h>

#include "base/error.h"

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
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
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
    hash.update({buffer.data(), count});
  }
  if (std::ferror(stream.get())) throw failed();
  return hash.hex_digest();
}

}  // namespace draftsmith
