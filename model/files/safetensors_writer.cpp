#include "model/files/safetensors_writer.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace draftsmith::model {

namespace {

// The tensors begin at a multiple of this, so that a mapped file can be read with any vector width.
constexpr size_t kTensorAlignment = 64;

uint64_t stored_bytes(const TensorPlace& place) {
  return static_cast<uint64_t>(c10::multiply_integers(place.shape)) * c10::elementSize(place.dtype);
}

// The header with its length in front, padded with spaces as the format allows.
std::string make_header(const std::vector<TensorPlace>& places) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  uint64_t offset = 0;
  for (const TensorPlace& place : places) {
    const uint64_t end = offset + stored_bytes(place);
    header[place.name] = {
        {"dtype", stored_dtype_name(place.dtype)}, {"shape", place.shape}, {"data_offsets", {offset, end}}};
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

std::vector<TensorPlace> in_file_order(std::vector<TensorPlace> places) {
  std::sort(places.begin(), places.end(), [](const TensorPlace& a, const TensorPlace& b) {
    const auto width_a = c10::elementSize(a.dtype);
    const auto width_b = c10::elementSize(b.dtype);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  return places;
}

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorPlace>& places,
                       const std::function<at::Tensor(const TensorPlace&)>& tensor) {
  AtomicFile out(file);
  out.write(make_header(places));
  for (const TensorPlace& place : places) {
    const at::Tensor stored = tensor(place).detach().to(at::kCPU, place.dtype).contiguous();
    require_finite(file.string(), place.name, stored);
    out.write(stored.const_data_ptr(), stored_bytes(place));
  }
  out.commit();
}

void write_safetensors(const std::filesystem::path& file, std::vector<TensorToStore> tensors) {
  std::vector<TensorPlace> places;
  std::map<std::string, at::Tensor> by_name;
  for (const TensorToStore& item : tensors) {
    places.push_back({item.name, item.tensor.sizes().vec(), item.dtype});
    by_name.emplace(item.name, item.tensor);
  }
  write_safetensors(file, in_file_order(std::move(places)),
                    [&](const TensorPlace& place) { return by_name.at(place.name); });
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
