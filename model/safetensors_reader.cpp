#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "model/safetensors.h"
#include "model/safetensors_header.h"

namespace draftsmith::model {

namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

std::string tensor_where(const std::filesystem::path& file, const std::string& name) {
  return fmt::format("{}: tensor '{}'", file.string(), printable(name));
}

}  // namespace

struct SafetensorsFile::Mapping {
  const char* data = nullptr;
  size_t bytes = 0;

  explicit Mapping(const std::filesystem::path& file) {
    const auto refuse = [&](const std::string& what, const std::string& found) {
      throw UserError(
          {.where = file.string(), .what = what, .expected = "a safetensors file", .found = found, .hint = {}});
    };
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      refuse("cannot open the weights", std::strerror(errno));
    }
    struct stat status {};
    const bool known = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    bytes = known ? static_cast<size_t>(status.st_size) : 0;
    void* mapped = bytes >= 8 ? ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
    ::close(descriptor);
    if (!known) {
      refuse("cannot read the weights", "no regular file");
    }
    if (bytes < 8) {
      refuse("file is too short to be a safetensors file", fmt::format("{} bytes", bytes));
    }
    if (mapped == MAP_FAILED) {
      refuse("cannot map the weights into memory", std::strerror(errno));
    }
    data = static_cast<const char*>(mapped);
  }
  ~Mapping() { ::munmap(const_cast<char*>(data), bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

SafetensorsFile::SafetensorsFile(std::filesystem::path file)
    : file_(std::move(file)), mapping_(std::make_unique<Mapping>(file_)) {
  parse_header();
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

void SafetensorsFile::parse_header() {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, mapping_->data, sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > mapping_->bytes - 8) {
    throw UserError(
        {.where = file_.string(),
         .what = "the header's length is impossible: the file is truncated or no safetensors file",
         .expected = fmt::format("at most {} bytes", std::min<uint64_t>(kMaxHeaderBytes, mapping_->bytes - 8)),
         .found = fmt::format("{} bytes", header_bytes),
         .hint = "fetch or write the file again"});
  }
  data_begin_ = 8 + header_bytes;
  SafetensorsHeader header =
      read_safetensors_header({mapping_->data + 8, header_bytes}, mapping_->bytes - data_begin_, file_);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

const TensorEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    throw std::logic_error("SafetensorsFile: no tensor '" + name + "' in " + file_.string());
  }
  return it->second;
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const TensorEntry& wanted = entry(name);
  return std::as_bytes(std::span(mapping_->data + data_begin_ + wanted.begin, wanted.end - wanted.begin));
}

at::Tensor SafetensorsFile::read(const std::string& name, at::ScalarType dtype) const {
  const TensorEntry& wanted = entry(name);
  const auto stored = float_type(wanted.dtype);
  if (!stored) {
    throw UserError({.where = tensor_where(file_, name),
                     .what = "weights must be floating point numbers",
                     .expected = "dtype F32, F16, BF16 or F64",
                     .found = wanted.dtype,
                     .hint = "quantised checkpoints are not supported; use the original one"});
  }
  at::Tensor tensor = at::empty(wanted.shape, at::TensorOptions().dtype(*stored));
  const auto source = bytes(name);
  if (!source.empty()) {
    std::memcpy(tensor.data_ptr(), source.data(), source.size());
  }
  return tensor.to(dtype);
}

}  // namespace draftsmith::model
