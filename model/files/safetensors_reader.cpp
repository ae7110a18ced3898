#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "model/files/safetensors.h"
#include "model/files/safetensors_header.h"

namespace draftsmith::model {

namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int64_t kLengthBytes = 8;

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path file) : file_(std::move(file)), mapping_(file_) {
  if (mapping_.bytes() < kLengthBytes) {
    throw UserError({.where = file_.string(),
                     .what = "file is too short to be a safetensors file",
                     .expected = "a safetensors file",
                     .found = fmt::format("{} bytes", mapping_.bytes()),
                     .hint = {}});
  }
  parse_header();
}

void SafetensorsFile::parse_header() {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, mapping_.data().get(), sizeof(header_bytes));
  const auto most = std::min(kMaxHeaderBytes, static_cast<uint64_t>(mapping_.bytes() - kLengthBytes));
  if (header_bytes > most) {
    throw UserError({.where = file_.string(),
                     .what = "the header's length is impossible: the file is truncated or no safetensors file",
                     .expected = fmt::format("at most {} bytes", most),
                     .found = fmt::format("{} bytes", header_bytes),
                     .hint = "fetch or write the file again"});
  }
  data_begin_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  SafetensorsHeader header = read_safetensors_header({mapping_.data().get() + kLengthBytes, header_bytes},
                                                     static_cast<uint64_t>(mapping_.bytes() - data_begin_), file_);
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
  return std::as_bytes(std::span(mapping_.data().get() + data_begin_ + wanted.begin, wanted.end - wanted.begin));
}

at::Tensor SafetensorsFile::stored(const std::string& name) const {
  const TensorEntry& wanted = entry(name);
  const auto type = float_type(wanted.dtype);
  if (!type) {
    throw UserError({.where = fmt::format("{}: tensor '{}'", file_.string(), printable(name)),
                     .what = "weights must be floating point numbers",
                     .expected = "dtype F32, F16, BF16 or F64",
                     .found = wanted.dtype,
                     .hint = "quantised checkpoints are not supported; use the original one"});
  }
  const auto source = bytes(name);
  const at::TensorOptions options(*type);
  if (source.empty() || reinterpret_cast<uintptr_t>(source.data()) % c10::elementSize(*type) != 0) {
    at::Tensor copy = at::empty(wanted.shape, options);
    if (!source.empty()) std::memcpy(copy.data_ptr(), source.data(), source.size());
    return copy;
  }
  return at::from_blob(
      const_cast<std::byte*>(source.data()), wanted.shape, [mapping = mapping_.data()](void*) {}, options);
}

}  // namespace draftsmith::model
