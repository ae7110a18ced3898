#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "model/safetensors.h"

namespace draftsmith::model {

namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMostProblems = 20;

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

// One header entry, checked by itself; a problem is recorded and nothing returned when it is wrong.
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
    if (entry->begin != covered && problems.list().size() < kMostProblems) {
      const bool overlap = entry->begin < covered;
      problems.add({.where = tensor_where(file, *name),
                    .what = overlap ? fmt::format("bytes overlap those of tensor '{}'", printable(*previous))
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
  const uint64_t data_bytes = mapping_->bytes - data_begin_;
  const json header = parse_json({mapping_->data + 8, header_bytes}, file_.string() + ": header");
  if (!header.is_object()) {
    throw UserError({.where = file_.string(),
                     .what = "the header is no JSON object",
                     .expected = "an object of tensors",
                     .found = header.type_name(),
                     .hint = {}});
  }
  Problems problems;
  const EntryReader reader(file_, data_bytes, problems);
  for (const auto& [name, value] : header.items()) {
    if (problems.list().size() >= kMostProblems) {
      break;
    }
    if (name == "__metadata__") {
      read_metadata(file_, value, metadata_, problems);
    } else if (auto entry = reader.read(name, value)) {
      tensors_.emplace(name, std::move(*entry));
    }
  }
  problems.throw_if_any();
  check_cover(file_, tensors_, data_bytes, problems);
  problems.throw_if_any();
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
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return name.size() > kLongest ? out + "..." : out;
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace draftsmith::model
