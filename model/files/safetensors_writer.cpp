#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/safetensors.h"

namespace draftsmith::model {

namespace {

// The tensors begin at a multiple of this, so that a mapped file can be read with any vector width.
constexpr size_t kTensorAlignment = 64;

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
    header[item.name] = {{"dtype", stored_dtype_name(item.dtype)},
                         {"shape", item.tensor.sizes().vec()},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kTensorAlignment - (8 + text.size()) % kTensorAlignment) % kTensorAlignment, ' ');
  const uint64_t bytes = text.size();
  std::string length(sizeof(bytes), '\0');
  std::memcpy(length.data(), &bytes, sizeof(bytes));
  return length + text;
}

}  // namespace

void require_finite(const std::string& where, const std::string& name, const at::Tensor& tensor) {
  if (!at::isfinite(tensor).all().item<bool>()) {
    const int64_t nan = at::isnan(tensor).sum().item<int64_t>();
    const int64_t inf = at::isinf(tensor).sum().item<int64_t>();
    throw RunError({.where = where + ": tensor '" + name + "'",
                    .what = "refusing to write weights that are not finite",
                    .expected = fmt::format("finite {} values", stored_dtype_name(tensor.scalar_type())),
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
  AtomicFile out(file);
  out.write(make_header(tensors));
  for (const TensorToStore& item : tensors) {
    const at::Tensor stored = item.tensor.detach().to(at::kCPU, item.dtype).contiguous();
    require_finite(file.string(), item.name, stored);
    out.write(stored.const_data_ptr(), stored_bytes(item));
  }
  out.commit();
}

std::string stored_dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kDouble:
      return "F64";
    case at::kLong:
      return "I64";
    case at::kBool:
      return "BOOL";
    default:
      throw std::logic_error(std::string("stored_dtype_name: not one we write: ") + c10::toString(type));
  }
}

}  // namespace draftsmith::model
