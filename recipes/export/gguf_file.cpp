#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <c10/util/Half.h>
#include <c10/util/TypeCast.h>
#include <fmt/format.h>

#include "base/files.h"
#include "recipes/export/gguf.h"

namespace draftsmith::recipes {

namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kGgufAlignment = 32;  // of the tensors; general.alignment is absent

// Types of values.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt32 = 5,
  kUint32 = 4,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9
};

template <class T>
constexpr GgufValueType gguf_type_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufValueType::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufValueType::kUint8;
  if constexpr (std::is_same_v<T, int32_t>) return GgufValueType::kInt32;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufValueType::kUint32;
  if constexpr (std::is_same_v<T, float>) return GgufValueType::kFloat32;
  if constexpr (std::is_same_v<T, std::string>) return GgufValueType::kString;
  return GgufValueType::kArray;
}

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

uint64_t gguf_bytes(const GgufTensor& tensor) {
  const auto count = static_cast<uint64_t>(c10::multiply_integers(tensor.shape));
  switch (tensor.type) {
    case GgufType::kF32:
      return count * 4;
    case GgufType::kQ8_0:
      return count / kBlockValues * kBlockBytes;
    default:
      return count * 2;
  }
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append(std::string& out, const std::string& text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

template <class T>
void append(std::string& out, const std::vector<T>& list) {
  append(out, gguf_type_of<T>());
  append(out, static_cast<uint64_t>(list.size()));
  for (const T& item : list) append(out, item);
}

std::string header_of(const GgufValues& values, const std::vector<GgufTensor>& tensors) {
  std::string header(kGgufMagic);
  append(header, kGgufVersion);
  append(header, static_cast<uint64_t>(tensors.size()));
  append(header, static_cast<uint64_t>(values.size()));
  for (const auto& [key, value] : values) {
    append(header, key);
    std::visit(
        [&](const auto& held) {
          append(header, gguf_type_of<std::decay_t<decltype(held)>>());
          append(header, held);
        },
        value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    append(header, tensor.name);
    append(header, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      append(header, static_cast<uint64_t>(*size));
    }
    append(header, tensor.type);
    append(header, offset);
    offset += aligned(gguf_bytes(tensor));
  }
  header.resize(aligned(header.size()), '\0');
  return header;
}

void require_finite_values(const at::Tensor& stored, const GgufTensor& tensor, const std::filesystem::path& file) {
  if (at::isfinite(stored).all().item<bool>()) return;
  throw RunError({.where = fmt::format("{}: tensor '{}'", file.string(), tensor.name),
                  .what = "refusing to write weights that are not finite",
                  .expected = fmt::format("finite {} values", gguf_type_name(tensor.type)),
                  .found = "NaN, or a value beyond the type's largest",
                  .hint = "training diverged, or the values do not fit the type (fp16 ends at 65504)"});
}

std::string bytes_of(const at::Tensor& values, const GgufTensor& tensor, const std::filesystem::path& file) {
  if (tensor.type == GgufType::kQ8_0) {
    // A block's factor is fp16, and each of its numbers at most 127 times it.
    require_finite_values(values.abs().amax(-1).div(127).to(at::kHalf), tensor, file);
    return to_blocks({values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
  }
  const at::Tensor stored = values.to(scalar_type_of(tensor.type));
  require_finite_values(stored, tensor, file);
  return {static_cast<const char*>(stored.const_data_ptr()), static_cast<size_t>(stored.nbytes())};
}

}  // namespace

void write_gguf(const std::filesystem::path& file, const GgufValues& values, const std::vector<GgufTensor>& tensors,
                const std::function<at::Tensor(const GgufTensor&)>& values_of) {
  AtomicFile out(file);
  out.write(header_of(values, tensors));
  for (const GgufTensor& tensor : tensors) {
    std::string bytes = bytes_of(values_of(tensor).contiguous(), tensor, file);
    bytes.resize(aligned(bytes.size()), '\0');
    out.write(bytes);
  }
  out.commit();
}

std::string to_blocks(std::span<const float> values) {
  const size_t count = values.size() / kBlockValues;
  std::string blocks(count * kBlockBytes, '\0');
  for (size_t block = 0; block < count; ++block) {
    const auto numbers = values.subspan(block * kBlockValues, kBlockValues);
    float largest = 0;
    for (const float number : numbers) largest = std::max(largest, std::abs(number));
    const float factor = largest / 127;
    const float inverse = factor > 0 ? 1 / factor : 0;
    char* out = blocks.data() + block * kBlockBytes;
    const auto stored = c10::convert<c10::Half>(factor);  // made of __fp16 on AArch64, an explicit step there
    std::memcpy(out, &stored, sizeof(stored));
    for (size_t i = 0; i < numbers.size(); ++i) {
      out[sizeof(stored) + i] = static_cast<char>(static_cast<int8_t>(std::round(numbers[i] * inverse)));
    }
  }
  return blocks;
}

at::ScalarType scalar_type_of(GgufType type) {
  return type == GgufType::kF16 ? at::kHalf : type == GgufType::kBF16 ? at::kBFloat16 : at::kFloat;
}

std::string gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return "F32";
    case GgufType::kF16:
      return "F16";
    case GgufType::kBF16:
      return "BF16";
    default:
      return "Q8_0";
  }
}

}  // namespace draftsmith::recipes
