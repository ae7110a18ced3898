#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "recipes/export/gguf/blocks.h"
#include "recipes/export/gguf/gguf_file.h"
#include "recipes/export/gguf/gguf_layout.h"

namespace draftsmith::recipes {

namespace {

constexpr uint64_t kMostValues = 1 << 16;
constexpr uint64_t kMostTensors = 1 << 20;
constexpr uint32_t kMostDimensions = 4;

// A cursor over a file's bytes.
class GgufCursor {
 public:
  GgufCursor(const std::filesystem::path& file, const MappedFile& mapping) : file_(file), mapping_(mapping) {}

  template <class T>
  T number(const char* what) {
    T value{};
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  std::string text(const char* what) {
    const uint64_t bytes = number<uint64_t>(what);
    return {take(bytes, what), static_cast<size_t>(bytes)};
  }

  template <class T>
  T value(const char* what) {
    if constexpr (std::is_same_v<T, std::string>) {
      return text(what);
    } else if constexpr (std::is_same_v<T, bool>) {
      return number<uint8_t>(what) != 0;
    } else {
      return number<T>(what);
    }
  }

  template <class T>
  std::vector<T> list(uint64_t count, const char* what) {
    require_left(count, what);  // each item takes a byte or more
    std::vector<T> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) items.push_back(value<T>(what));
    return items;
  }

  uint64_t at() const { return at_; }
  uint64_t bytes() const { return static_cast<uint64_t>(mapping_.bytes()); }
  const char* data() const { return mapping_.data().get(); }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& found) const {
    throw UserError({.where = file_.string(),
                     .what = what,
                     .expected = expected,
                     .found = found,
                     .hint = "`draftsmith export --format gguf` writes such files"});
  }

 private:
  void require_left(uint64_t bytes, const char* what) const {
    if (bytes <= this->bytes() - at_) return;
    refuse("truncated or damaged GGUF file", fmt::format("{} bytes of {} from byte {} on", bytes, what, at_),
           fmt::format("{} bytes", this->bytes() - at_));
  }

  const char* take(uint64_t bytes, const char* what) {
    require_left(bytes, what);
    const char* from = data() + at_;
    at_ += bytes;
    return from;
  }

  std::filesystem::path file_;
  MappedFile mapping_;
  uint64_t at_ = 0;
};

GgufValue read_list(GgufCursor& cursor, const std::string& key) {
  const auto type = cursor.number<GgufValueType>("a list's type");
  const auto count = cursor.number<uint64_t>("a list's length");
  switch (type) {
    case GgufValueType::kString:
      return cursor.list<std::string>(count, "a list of texts");
    case GgufValueType::kFloat32:
      return cursor.list<float>(count, "a list of numbers");
    case GgufValueType::kInt32:
      return cursor.list<int32_t>(count, "a list of integers");
    case GgufValueType::kUint8:
      return cursor.list<uint8_t>(count, "a list of bytes");
    default:
      cursor.refuse("list '" + key + "' has an unsupported type", "texts, fp32, int32 or bytes",
                    fmt::format("type {}", static_cast<uint32_t>(type)));
  }
}

GgufValue read_value(GgufCursor& cursor, const std::string& key) {
  const auto type = cursor.number<GgufValueType>("a value's type");
  switch (type) {
    case GgufValueType::kUint32:
      return cursor.value<uint32_t>("a value");
    case GgufValueType::kFloat32:
      return cursor.value<float>("a value");
    case GgufValueType::kBool:
      return cursor.value<bool>("a value");
    case GgufValueType::kString:
      return cursor.value<std::string>("a value");
    case GgufValueType::kArray:
      return read_list(cursor, key);
    default:
      cursor.refuse("value '" + key + "' has an unsupported type", "uint32, fp32, bool, text or a list",
                    fmt::format("type {}", static_cast<uint32_t>(type)));
  }
}

GgufPlace read_place(GgufCursor& cursor) {
  GgufPlace place{.name = cursor.text("a tensor's name"), .shape = {}, .type = GgufType::kF32};
  const auto dimensions = cursor.number<uint32_t>("a tensor's dimensions");
  uint64_t count = 1;
  if (dimensions > kMostDimensions) {
    cursor.refuse("tensor '" + place.name + "' has too many dimensions", "at most 4", std::to_string(dimensions));
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.number<uint64_t>("a tensor's sizes");
    if (size == 0 || size > cursor.bytes() || count > cursor.bytes() / size) {
      cursor.refuse("tensor '" + place.name + "' has impossible sizes", "sizes that fit the file",
                    std::to_string(size));
    }
    count *= size;
    place.shape.insert(place.shape.begin(), static_cast<int64_t>(size));
  }
  place.type = cursor.number<GgufType>("a tensor's type");
  const std::set<GgufType> known = {GgufType::kF32, GgufType::kF16, GgufType::kBF16, GgufType::kQ8_0};
  const bool blocks_fit =
      place.type != GgufType::kQ8_0 || (!place.shape.empty() && place.shape.back() % kBlockValues == 0);
  if (!known.contains(place.type) || !blocks_fit) {
    cursor.refuse("tensor '" + place.name + "' has an unsupported type",
                  "F32, F16, BF16, or Q8_0 with rows of whole blocks",
                  fmt::format("type {}", static_cast<uint32_t>(place.type)));
  }
  return place;
}

}  // namespace

GgufFile::GgufFile(std::filesystem::path file) : file_(std::move(file)), mapping_(file_) {
  GgufCursor cursor(file_, mapping_);
  const auto magic = cursor.list<uint8_t>(kGgufMagic.size(), "the format's name");
  const auto version = cursor.number<uint32_t>("the version");
  if (std::string(magic.begin(), magic.end()) != kGgufMagic || version != kGgufVersion) {
    cursor.refuse("not a GGUF file of version 3", "'GGUF', then 3", fmt::format("version {}", version));
  }
  const auto tensors = cursor.number<uint64_t>("the number of tensors");
  const auto values = cursor.number<uint64_t>("the number of values");
  if (tensors > kMostTensors || values > kMostValues) {
    cursor.refuse("damaged GGUF file", "at most 2^20 tensors and 2^16 values", fmt::format("{}, {}", tensors, values));
  }
  for (uint64_t i = 0; i < values; ++i) {
    std::string key = cursor.text("a value's name");
    GgufValue value = read_value(cursor, key);
    values_.emplace_back(std::move(key), std::move(value));
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    places_.push_back(read_place(cursor));
    begins_.push_back(cursor.number<uint64_t>("a tensor's offset"));
  }
  const uint64_t data = aligned(cursor.at());
  for (size_t i = 0; i < places_.size(); ++i) {
    const uint64_t bytes = gguf_bytes(places_[i]);
    const uint64_t room = data > cursor.bytes() ? 0 : cursor.bytes() - data;
    if (begins_[i] > room || bytes > room - begins_[i] || begins_[i] % kGgufAlignment != 0) {
      cursor.refuse("tensor '" + places_[i].name + "' lies outside the file",
                    fmt::format("{} bytes within {}", bytes, room), fmt::format("from byte {} on", begins_[i]));
    }
    begins_[i] += data;
  }
}

at::Tensor GgufFile::tensor(const std::string& name) const {
  const auto found =
      std::find_if(places_.begin(), places_.end(), [&](const auto& place) { return place.name == name; });
  if (found == places_.end()) {
    throw UserError({.where = file_.string(),
                     .what = "has no tensor '" + name + "'",
                     .expected = "a model that `draftsmith export --format gguf` wrote"});
  }
  const char* from = mapping_.data().get() + begins_[static_cast<size_t>(found - places_.begin())];
  at::Tensor values = at::empty(found->shape, at::kFloat);
  if (found->type == GgufType::kQ8_0) {
    from_blocks({from, static_cast<size_t>(gguf_bytes(*found))},
                {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
    return values;
  }
  const at::ScalarType type = found->type == GgufType::kF16    ? at::kHalf
                              : found->type == GgufType::kBF16 ? at::kBFloat16
                                                               : at::kFloat;
  at::Tensor stored = at::empty(found->shape, type);
  std::memcpy(stored.mutable_data_ptr(), from, static_cast<size_t>(stored.nbytes()));
  return values.copy_(stored);
}

}  // namespace draftsmith::recipes
