#include "model/files/weight_files.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/logging.h"
#include "base/registry.h"
#include "base/utf8.h"

namespace draftsmith::model {

// ---- Header
// It is checked against the bytes that follow it before any offset or shape is used.

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

// Reads and checks one header entry by itself. Returns nothing, with a problem, if it is wrong.
std::optional<TensorEntry> read_entry(const std::string& name, const json& value, uint64_t data_bytes,
                                      const std::filesystem::path& file, Problems& problems) {
  const auto fail = [&](const std::string& what, const std::string& expected, const json& found) {
    problems.add(
        {tensor_where(file, name), what, expected, found.is_string() ? found.get<std::string>() : brief(found), ""});
    return std::nullopt;
  };
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
    return fail("header entry is incomplete", "an object with dtype, shape and data_offsets", value);
  }
  const json& dtype = value["dtype"];
  if (!dtype.is_string() || element_bytes(dtype.get<std::string>()) == 0) {
    return fail("unknown dtype", "F32, F16, BF16, F64 or another type of the safetensors format", dtype);
  }
  const auto shape = sizes(value["shape"]);
  if (!shape || shape->size() > 64) {
    return fail("bad shape", "a list of at most 64 integers, none negative", value["shape"]);
  }
  const auto offsets = sizes(value["data_offsets"]);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return fail("bad data_offsets", "[begin, end] with 0 <= begin <= end", value["data_offsets"]);
  }
  const TensorEntry entry{.dtype = dtype.get<std::string>(),
                          .shape = *shape,
                          .begin = static_cast<uint64_t>((*offsets)[0]),
                          .end = static_cast<uint64_t>((*offsets)[1])};
  const auto bytes = needed_bytes(entry.shape, element_bytes(entry.dtype));
  if (!bytes) return fail("the shape's size overflows", "a tensor that fits in memory", value["shape"]);
  if (entry.end > data_bytes) {
    return fail("bytes lie outside the file: it is truncated or its header is wrong",
                fmt::format("at most {} bytes of data", data_bytes), value["data_offsets"]);
  }
  if (entry.end - entry.begin != *bytes) {
    return fail("byte range does not match shape and dtype",
                fmt::format("{} bytes for {} {}", *bytes, entry.dtype, shape_text(entry.shape)),
                fmt::format("{} bytes, data_offsets {}", entry.end - entry.begin, value["data_offsets"].dump()));
  }
  return entry;
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
      problems.add({tensor_where(file, *name),
                    overlap ? fmt::format("bytes overlap the bytes of tensor '{}'", printable(*previous))
                            : "there is a hole before this tensor's bytes",
                    fmt::format("data_offsets that begin at {}", covered), fmt::format("{}", entry->begin), ""});
    }
    covered = std::max(covered, entry->end);
    previous = name;
  }
  if (covered != data_bytes && problems.empty()) {
    problems.add({file.string(), "the file holds bytes that belong to no tensor",
                  fmt::format("{} bytes of data", covered), fmt::format("{} bytes", data_bytes),
                  "the file is damaged; fetch or write it again"});
  }
}

// Parses and checks a header. `data_bytes` is the size of the data section.
std::map<std::string, TensorEntry> read_header(std::string_view text, uint64_t data_bytes,
                                               const std::filesystem::path& file) {
  const json root = parse_json(text, file.string() + ": header");
  if (!root.is_object()) {
    throw UserError({file.string(), "the header is not a JSON object", "an object of tensors", root.type_name(), ""});
  }
  std::map<std::string, TensorEntry> tensors;
  Problems problems;
  for (const auto& [name, value] : root.items()) {
    if (problems.list().size() >= kMostHeaderProblems) break;
    if (name == "__metadata__") {
      const auto is_text = [](const json& item) { return item.is_string(); };
      if (value.is_object() && std::all_of(value.begin(), value.end(), is_text)) continue;
      problems.add({file.string() + ": header", "__metadata__ is malformed", "an object whose values are strings",
                    brief(value), ""});
    } else if (auto entry = read_entry(name, value, data_bytes, file, problems)) {
      tensors.emplace(name, std::move(*entry));
    }
  }
  problems.throw_if_any();
  check_cover(file, tensors, data_bytes, problems);
  problems.throw_if_any();
  return tensors;
}

const NamedValues<at::ScalarType>& stored_types() {
  static const NamedValues<at::ScalarType> kTypes("type", {{"F32", at::kFloat},
                                                           {"F16", at::kHalf},
                                                           {"BF16", at::kBFloat16},
                                                           {"F64", at::kDouble},
                                                           {"I64", at::kLong},
                                                           {"BOOL", at::kBool}});
  return kTypes;
}

}  // namespace

std::optional<at::ScalarType> float_type(const std::string& dtype) {
  const auto* found = stored_types().find(dtype);
  return found != nullptr && at::isFloatingType(found->value) ? std::optional(found->value) : std::nullopt;
}

std::string stored_dtype_name(at::ScalarType type) {
  return stored_types().name(type);
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Shapes shapes_of(const std::map<std::string, at::Tensor>& tensors) {
  Shapes shapes;
  for (const auto& [name, tensor] : tensors) shapes[name] = tensor.sizes().vec();
  return shapes;
}

void check_shapes(const Shapes& expected, const Shapes& found, const std::string& where, const std::string& hint,
                  Problems& problems) {
  for (const auto& [name, shape] : expected) {
    const auto present = found.find(name);
    if (present == found.end()) {
      problems.add({where, "the tensor " + name + " is missing", shape_text(shape), "none", hint});
    } else if (present->second != shape) {
      problems.add(
          {where, "the tensor " + name + " has another shape", shape_text(shape), shape_text(present->second), hint});
    }
  }
  for (const auto& [name, shape] : found) {
    if (expected.contains(name)) continue;
    problems.add({where, "the tensor " + printable(name) + " is none of these", "no tensor of this name",
                  shape_text(shape), hint});
  }
}

namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int64_t kLengthBytes = 8;

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path file) : file_(std::move(file)), mapping_(file_) {
  if (mapping_.bytes() < kLengthBytes) {
    throw UserError({file_.string(), "file is too short to be a safetensors file", "a safetensors file",
                     fmt::format("{} bytes", mapping_.bytes()), ""});
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, mapping_.data().get(), sizeof(header_bytes));
  const auto most = std::min(kMaxHeaderBytes, static_cast<uint64_t>(mapping_.bytes() - kLengthBytes));
  if (header_bytes > most) {
    throw UserError({file_.string(), "the header's length is impossible: the file is truncated or no safetensors file",
                     fmt::format("at most {} bytes", most), fmt::format("{} bytes", header_bytes),
                     "fetch or write the file again"});
  }
  data_begin_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  tensors_ = read_header({mapping_.data().get() + kLengthBytes, header_bytes},
                         static_cast<uint64_t>(mapping_.bytes() - data_begin_), file_);
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const TensorEntry& wanted = tensors_.at(name);
  return std::as_bytes(std::span(mapping_.data().get() + data_begin_ + wanted.begin, wanted.end - wanted.begin));
}

at::Tensor SafetensorsFile::stored(const std::string& name) const {
  const TensorEntry& wanted = tensors_.at(name);
  const auto type = float_type(wanted.dtype);
  if (!type) {
    throw UserError({fmt::format("{}: tensor '{}'", file_.string(), printable(name)),
                     "weights must be floating point numbers", "dtype F32, F16, BF16 or F64", wanted.dtype,
                     "quantised checkpoints are not supported; use the original one"});
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

// ---- The weights of a model directory

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPickled = "pytorch_model.bin";

// Opens a file by the end of its name: ".safetensors", otherwise a pickled state dict. Errors: those of the readers.
std::unique_ptr<TensorFile> open_tensor_file(const fs::path& file) {
  if (file.extension() == ".safetensors") return std::make_unique<SafetensorsFile>(file);
  return open_pickled_weights(file);
}

// Returns a file's path inside the directory, normal; empty if it leads out of it or names no file.
std::string path_inside(const json& file) {
  if (!file.is_string()) return "";
  const std::string& text = file.get_ref<const std::string&>();
  const fs::path path = fs::path(text).lexically_normal();
  const bool inside = text.find('\0') == std::string::npos && path.has_filename() && !path.is_absolute() &&
                      path != "." && *path.begin() != "..";
  return inside ? path.generic_string() : "";
}

// The index's weight_map: every tensor with its file, a path inside the directory.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const json root = load_json(index);
  Problems problems;
  std::map<std::string, std::string> map;
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object() ||
      root["weight_map"].empty()) {
    throw UserError({index.string(), "the index has no weight_map",
                     "an object that maps tensor names to files, which is not empty", brief(root), ""});
  }
  for (const auto& [name, file] : root["weight_map"].items()) {
    const std::string path = path_inside(file);
    if (path.empty()) {
      problems.add({fmt::format("{}: tensor '{}'", index.string(), printable(name)),
                    "the index must name a file inside the directory", "a file's name, perhaps in a sub-folder",
                    brief(file), ""});
      continue;
    }
    map[name] = path;
  }
  problems.throw_if_any();
  return map;
}

// Returns whether the shards of an index are read although a single file lies beside it: it lacks some of their
// tensors, and all shards are there. Says which of the two is read, and why.
bool shards_count(const fs::path& index, const TensorFile& single) {
  std::map<std::string, std::string> weight_map;
  bool complete = true;
  try {
    weight_map = read_weight_map(index);
  } catch (const UserError&) {  // one who reads the single file needs no index
    complete = false;
  }
  int64_t lacking = 0;
  for (const auto& [name, file] : weight_map) {
    std::error_code none;  // as of a name that no file can have
    complete = complete && fs::is_regular_file(index.parent_path() / file, none);
    lacking += single.tensors().contains(name) ? 0 : 1;
  }
  const std::string name = single.file().filename().string();
  if (lacking > 0 && complete) {
    log_warning_once("{}: its shards are read and {} beside it is not, which lacks {} of the {} tensors that it names",
                     index.string(), name, lacking, weight_map.size());
    return true;
  }
  log_warning_once(
      "{}: ignored, since {} lies beside it {}", index.string(), name,
      complete ? "with all of its tensors, and is what Transformers reads" : "and not all of its shards do");
  return false;
}

}  // namespace

WeightFiles::WeightFiles(const fs::path& directory) {
  for (const char* single : {kWeightsFile, kPickled}) {
    const fs::path index = directory / (std::string(single) + ".index.json");
    if (fs::exists(directory / single)) {
      auto file = open_tensor_file(directory / single);
      if (fs::exists(index) && shards_count(index, *file)) {
        open_shards(index);
        return;
      }
      files_.push_back(std::move(file));
      for (const auto& [name, entry] : files_.front()->tensors()) {
        file_of_[name] = 0;
      }
      return;
    }
    if (fs::exists(index)) {
      open_shards(index);
      return;
    }
  }
  std::string found = "neither";
  std::error_code status;
  for (const fs::directory_entry& file : fs::directory_iterator(directory, status)) {
    const std::string name = file.path().filename().string();
    if (name.find("-of-") != std::string::npos) found = name + ", but no index of such shards";
  }
  throw UserError({directory.string(), "no weights in this model directory",
                   fmt::format("{}, {}, or one of them in shards with its .index.json", kWeightsFile, kPickled), found,
                   found == "neither" ? "is this the right directory?" : "fetch the index as well"});
}

void WeightFiles::open_shards(const fs::path& index) {
  const auto weight_map = read_weight_map(index);
  std::map<std::string, size_t> opened;  // file name -> index into files_
  std::vector<std::string> others;       // tensors of shards that the index does not place there
  Problems problems;
  for (const auto& [name, file] : weight_map) {
    if (opened.count(file) == 0) {
      opened[file] = files_.size();
      files_.push_back(open_tensor_file(index.parent_path() / file));
      for (const auto& [stored, entry] : files_.back()->tensors()) {
        const auto named = weight_map.find(stored);
        if (named == weight_map.end() || named->second != file) others.push_back(printable(stored) + " in " + file);
      }
    }
    const size_t shard = opened[file];
    if (files_[shard]->tensors().count(name) == 0) {
      problems.add({fmt::format("{}: tensor '{}'", files_[shard]->file().string(), printable(name)),
                    "the tensor is not in the shard that the index names", "the tensor", "nothing",
                    "shards of different models are mixed; fetch or write them again"});
    }
    file_of_[name] = shard;
  }
  problems.throw_if_any();
  if (others.empty()) return;
  log_warning_once("{}: {} tensors are ignored, since it does not place them where they are: {}{}", index.string(),
                   others.size(), others.front(), others.size() > 1 ? ", ..." : "");
}

const TensorEntry& WeightFiles::entry(const std::string& name) const {
  return files_[file_of_.at(name)]->tensors().at(name);
}

std::string WeightFiles::where(const std::string& name) const {
  return fmt::format("{}: tensor '{}'", files_[file_of_.at(name)]->file().string(), printable(name));
}

void WeightFiles::will_need() const {
  for (const auto& file : files_) file->will_need();
}

void WeightFiles::forget_pages() const {
  for (const auto& file : files_) file->forget_pages();
}

std::span<const std::byte> WeightFiles::bytes(const std::string& name) const {
  return files_[file_of_.at(name)]->bytes(name);
}

}  // namespace draftsmith::model
