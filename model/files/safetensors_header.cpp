#include "model/files/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace draftsmith::model {

namespace {

using nlohmann::json;

constexpr size_t kMostHeaderProblems = 20;

// Bytes of one element; 0 for an unknown type.
uint64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}, {"C64", 8}};
  const auto it = kBytes.find(dtype);
  return it == kBytes.end() ? 0 : it->second;
}

std::string tensor_where(const std::filesystem::path& file, const std::string& name) {
  return fmt::format("{}: tensor '{}'", file.string(), printable(name));
}

// An array of non-negative integers that fit int64, or nothing.
std::optional<std::vector<int64_t>> sizes(const json& value) {
  if (!value.is_array()) {
    return std::nullopt;
  }
  std::vector<int64_t> list;
  for (const json& item : value) {
    if (!item.is_number_unsigned() ||
        item.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return std::nullopt;
    }
    list.push_back(item.get<int64_t>());
  }
  return list;
}

// Bytes that a shape needs, or nothing when they overflow.
std::optional<uint64_t> needed_bytes(const std::vector<int64_t>& shape, uint64_t element) {
  uint64_t bytes = element;
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    // A zero among the sizes must not hide that the others overflow: strides are their products.
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ? std::nullopt
                                                                            : std::optional(empty ? 0 : bytes);
}

// A reader of one header entry, which it checks by itself. It returns nothing, with a problem, if the entry is wrong.
class EntryReader {
 public:
  EntryReader(const std::filesystem::path& file, uint64_t data_bytes, Problems& problems)
      : file_(file), data_bytes_(data_bytes), problems_(problems) {}

  std::optional<TensorEntry> read(const std::string& name, const json& value) const {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
      return fail(name, "header entry is incomplete", "an object with dtype, shape and data_offsets", value);
    }
    TensorEntry entry;
    const json& dtype = value["dtype"];
    if (!dtype.is_string() || element_bytes(dtype.get<std::string>()) == 0) {
      return fail(name, "unknown dtype", "F32, F16, BF16, F64 or another type of the safetensors format", dtype);
    }
    entry.dtype = dtype.get<std::string>();
    const auto shape = sizes(value["shape"]);
    if (!shape || shape->size() > 64) {
      return fail(name, "bad shape", "a list of at most 64 integers, none negative", value["shape"]);
    }
    entry.shape = *shape;
    const auto offsets = sizes(value["data_offsets"]);
    if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
      return fail(name, "bad data_offsets", "[begin, end] with 0 <= begin <= end", value["data_offsets"]);
    }
    entry.begin = static_cast<uint64_t>((*offsets)[0]);
    entry.end = static_cast<uint64_t>((*offsets)[1]);
    return check_size(name, entry, value);
  }

 private:
  std::optional<TensorEntry> check_size(const std::string& name, const TensorEntry& entry, const json& value) const {
    const auto bytes = needed_bytes(entry.shape, element_bytes(entry.dtype));
    if (!bytes) {
      return fail(name, "the shape's size overflows", "a tensor that fits in memory", value["shape"]);
    }
    if (entry.end > data_bytes_) {
      return fail(name, "bytes lie outside the file: it is truncated or its header is wrong",
                  fmt::format("at most {} bytes of data", data_bytes_), value["data_offsets"]);
    }
    if (entry.end - entry.begin != *bytes) {
      return fail(name, "byte range does not match shape and dtype",
                  fmt::format("{} bytes for {} {}", *bytes, entry.dtype, shape_text(entry.shape)),
                  fmt::format("{} bytes, data_offsets {}", entry.end - entry.begin, value["data_offsets"].dump()));
    }
    return entry;
  }

  std::nullopt_t fail(const std::string& name, const std::string& what, const std::string& expected,
                      const json& found) const {
    problems_.add({.where = tensor_where(file_, name),
                   .what = what,
                   .expected = expected,
                   .found = found.is_string() ? found.get<std::string>() : brief(found),
                   .hint = {}});
    return std::nullopt;
  }

  const std::filesystem::path& file_;
  uint64_t data_bytes_;
  Problems& problems_;
};

void read_metadata(const std::filesystem::path& file, const json& value, std::map<std::string, std::string>& metadata,
                   Problems& problems) {
  bool good = value.is_object();
  for (auto it = value.begin(); good && it != value.end(); ++it) {
    good = it.value().is_string();
    if (good) {
      metadata[it.key()] = it.value().get<std::string>();
    }
  }
  if (!good) {
    problems.add({.where = file.string() + ": header",
                  .what = "__metadata__ is malformed",
                  .expected = "an object whose values are strings",
                  .found = brief(value),
                  .hint = {}});
  }
}

// The format wants the tensors to cover the data section exactly, without overlap or hole.
void check_cover(const std::filesystem::path& file, const std::map<std::string, TensorEntry>& tensors,
                 uint64_t data_bytes, Problems& problems) {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  for (const auto& [name, entry] : tensors) {
    order.emplace_back(&name, &entry);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->begin, a.second->end) < std::tie(b.second->begin, b.second->end);
  });
  uint64_t covered = 0;
  const std::string* previous = nullptr;
  for (const auto& [name, entry] : order) {
    if (entry->begin != covered && problems.list().size() < kMostHeaderProblems) {
      const bool overlap = entry->begin < covered;
      problems.add({.where = tensor_where(file, *name),
                    .what = overlap ? fmt::format("bytes overlap the bytes of tensor '{}'", printable(*previous))
                                    : "there is a hole before this tensor's bytes",
                    .expected = fmt::format("data_offsets that begin at {}", covered),
                    .found = fmt::format("{}", entry->begin),
                    .hint = {}});
    }
    covered = std::max(covered, entry->end);
    previous = name;
  }
  if (covered != data_bytes && problems.empty()) {
    problems.add({.where = file.string(),
                  .what = "the file holds bytes that belong to no tensor",
                  .expected = fmt::format("{} bytes of data", covered),
                  .found = fmt::format("{} bytes", data_bytes),
                  .hint = "the file is damaged; fetch or write it again"});
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view text, uint64_t data_bytes,
                                          const std::filesystem::path& file) {
  const json root = parse_json(text, file.string() + ": header");
  if (!root.is_object()) {
    throw UserError({.where = file.string(),
                     .what = "the header is not a JSON object",
                     .expected = "an object of tensors",
                     .found = root.type_name(),
                     .hint = {}});
  }
  SafetensorsHeader header;
  Problems problems;
  const EntryReader reader(file, data_bytes, problems);
  for (const auto& [name, value] : root.items()) {
    if (problems.list().size() >= kMostHeaderProblems) {
      break;
    }
    if (name == "__metadata__") {
      read_metadata(file, value, header.metadata, problems);
    } else if (auto entry = reader.read(name, value)) {
      header.tensors.emplace(name, std::move(*entry));
    }
  }
  problems.throw_if_any();
  check_cover(file, header.tensors, data_bytes, problems);
  problems.throw_if_any();
  return header;
}

std::optional<at::ScalarType> float_type(const std::string& dtype) {
  if (dtype == "F32") {
    return at::kFloat;
  }
  if (dtype == "F16") {
    return at::kHalf;
  }
  if (dtype == "BF16") {
    return at::kBFloat16;
  }
  if (dtype == "F64") {
    return at::kDouble;
  }
  return std::nullopt;
}

std::string printable(std::string_view name) {
  return draftsmith::printable(name);
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace draftsmith::model
