#include <cstring>

#include <fmt/format.h>

#include "base/files.h"
#include "recipes/export/gguf/blocks.h"
#include "recipes/export/gguf/gguf_file.h"
#include "recipes/export/gguf/gguf_layout.h"

namespace draftsmith::recipes {

namespace {

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

std::string header_of(const GgufValues& values, const std::vector<GgufPlace>& places) {
  std::string header(kGgufMagic);
  append(header, kGgufVersion);
  append(header, static_cast<uint64_t>(places.size()));
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
  for (const GgufPlace& place : places) {
    append(header, place.name);
    append(header, static_cast<uint32_t>(place.shape.size()));
    for (auto size = place.shape.rbegin(); size != place.shape.rend(); ++size) {
      append(header, static_cast<uint64_t>(*size));
    }
    append(header, place.type);
    append(header, offset);
    offset += aligned(gguf_bytes(place));
  }
  header.resize(aligned(header.size()), '\0');
  return header;
}

void require_finite_values(const at::Tensor& stored, const GgufPlace& place, const std::filesystem::path& file) {
  if (at::isfinite(stored).all().item<bool>()) return;
  throw RunError({.where = fmt::format("{}: tensor '{}'", file.string(), place.name),
                  .what = "refusing to write weights that are not finite",
                  .expected = fmt::format("finite {} values", gguf_type_name(place.type)),
                  .found = "NaN, or a value beyond the type's largest",
                  .hint = "training diverged, or the values do not fit the type (fp16 ends at 65504)"});
}

std::string bytes_of(const at::Tensor& values, const GgufPlace& place, const std::filesystem::path& file) {
  if (place.type == GgufType::kQ8_0) {
    // A block's factor is fp16, and each of its numbers at most 127 times it.
    require_finite_values(values.abs().amax(-1).div(127).to(at::kHalf), place, file);
    return to_blocks({values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
  }
  const at::Tensor stored = values.to(scalar_type_of(place.type));
  require_finite_values(stored, place, file);
  return {static_cast<const char*>(stored.const_data_ptr()), static_cast<size_t>(stored.nbytes())};
}

}  // namespace

void write_gguf(const std::filesystem::path& file, const GgufValues& values, const std::vector<GgufPlace>& places,
                const std::function<at::Tensor(const GgufPlace&)>& tensor) {
  AtomicFile out(file);
  out.write(header_of(values, places));
  for (const GgufPlace& place : places) {
    std::string bytes = bytes_of(tensor(place).contiguous(), place, file);
    bytes.resize(aligned(bytes.size()), '\0');
    out.write(bytes);
  }
  out.commit();
}

at::ScalarType scalar_type_of(GgufType type) {
  return type == GgufType::kF16 ? at::kHalf : type == GgufType::kBF16 ? at::kBFloat16 : at::kFloat;
}

uint64_t gguf_bytes(const GgufPlace& place) {
  const auto count = static_cast<uint64_t>(c10::multiply_integers(place.shape));
  switch (place.type) {
    case GgufType::kF32:
      return count * 4;
    case GgufType::kQ8_0:
      return count / kBlockValues * kBlockBytes;
    default:
      return count * 2;
  }
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
