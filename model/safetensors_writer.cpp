#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "model/safetensors.h"

namespace draftsmith::model {

namespace {

// Where the tensors begin is a multiple of this, so that a mapped file can be read with any vector width.
constexpr size_t kAlignment = 64;

uint64_t stored_bytes(const TensorToStore& item) {
  return static_cast<uint64_t>(item.tensor.numel()) * c10::elementSize(item.dtype);
}

// The header with its length in front, padded with spaces as the format allows.
std::string make_header(const std::vector<TensorToStore>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  uint64_t offset = 0;
  for (const TensorToStore& item : tensors) {
    const uint64_t end = offset + stored_bytes(item);
    header[item.name] = {
        {"dtype", dtype_name(item.dtype)}, {"shape", item.tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  const uint64_t bytes = text.size();
  std::string length(sizeof(bytes), '\0');
  std::memcpy(length.data(), &bytes, sizeof(bytes));
  return length + text;
}

// Removes the temporary file unless it became the real one.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : target_(target), path_(target.string() + fmt::format(".tmp-{}", ::getpid())) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void commit() const { std::filesystem::rename(path_, target_); }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
};

}  // namespace

void require_finite(const std::string& where, const std::string& name, const at::Tensor& tensor) {
  if (!at::isfinite(tensor).all().item<bool>()) {
    const int64_t nan = at::isnan(tensor).sum().item<int64_t>();
    const int64_t inf = at::isinf(tensor).sum().item<int64_t>();
    throw RunError({.where = where + ": tensor '" + name + "'",
                    .what = "refusing to write weights that are not finite",
                    .expected = fmt::format("finite {} values", dtype_name(tensor.scalar_type())),
                    .found = fmt::format("{} NaN and {} infinite of {} values", nan, inf, tensor.numel()),
                    .hint = "training diverged, or the values do not fit the stored dtype (fp16 ends at 65504)"});
  }
}

void write_safetensors(const std::filesystem::path& file, std::vector<TensorToStore> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToStore& a, const TensorToStore& b) {
    const auto width_a = c10::elementSize(a.dtype);
    const auto width_b = c10::elementSize(b.dtype);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  const TemporaryFile temporary(file);
  std::ofstream out(temporary.path(), std::ios::binary);
  const std::string header = make_header(tensors);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const TensorToStore& item : tensors) {
    const at::Tensor stored = item.tensor.detach().to(at::kCPU, item.dtype).contiguous();
    require_finite(file.string(), item.name, stored);
    out.write(static_cast<const char*>(stored.data_ptr()), static_cast<std::streamsize>(stored_bytes(item)));
  }
  out.close();
  if (!out) {
    throw RunError({.where = file.string(),
                    .what = "cannot write the weights",
                    .expected = {},
                    .found = std::strerror(errno),
                    .hint = "is the disk full, or the directory not writable?"});
  }
  temporary.commit();
}

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kDouble:
      return "F64";
    default:
      throw std::logic_error(std::string("dtype_name: no float type: ") + c10::toString(type));
  }
}

}  // namespace draftsmith::model
