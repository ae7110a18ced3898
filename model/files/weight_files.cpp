#include "model/files/weight_files.h"

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "model/files/pickled_weights.h"
#include "model/files/safetensors.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPickled = "pytorch_model.bin";

// Opens a file by the end of its name: ".safetensors", otherwise a pickled state dict. Errors: those of the readers.
std::unique_ptr<TensorFile> open_tensor_file(const fs::path& file) {
  if (file.extension() == ".safetensors") return std::make_unique<SafetensorsFile>(file);
  return open_pickled_weights(file);
}

// The index's weight_map, every file a plain name inside the directory.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const json root = load_json(index);
  Problems problems;
  std::map<std::string, std::string> map;
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    throw UserError({.where = index.string(),
                     .what = "the index has no weight_map",
                     .expected = "an object that maps tensor names to files",
                     .found = brief(root),
                     .hint = {}});
  }
  for (const auto& [name, file] : root["weight_map"].items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    const bool plain = !text.empty() && text.find('/') == std::string::npos && text != "." && text != ".." &&
                       text.find('\0') == std::string::npos;
    if (!plain) {
      problems.add({.where = fmt::format("{}: tensor '{}'", index.string(), printable(name)),
                    .what = "the index must name a file inside the directory",
                    .expected = "a plain file name",
                    .found = brief(file),
                    .hint = {}});
      continue;
    }
    map[name] = text;
  }
  problems.throw_if_any();
  return map;
}

}  // namespace

WeightFiles::WeightFiles(const fs::path& directory) {
  for (const char* single : {kSingle, kPickled}) {
    const fs::path index = directory / (std::string(single) + ".index.json");
    if (fs::exists(directory / single)) {
      files_.push_back(open_tensor_file(directory / single));
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
  throw UserError({.where = directory.string(),
                   .what = "no weights in this model directory",
                   .expected = fmt::format("{}, {}, or one of them in shards with its .index.json", kSingle, kPickled),
                   .found = "neither",
                   .hint = "is this the right directory?"});
}

void WeightFiles::open_shards(const fs::path& index) {
  const auto weight_map = read_weight_map(index);
  std::map<std::string, size_t> opened;  // file name -> index into files_
  Problems problems;
  for (const auto& [name, file] : weight_map) {
    if (opened.count(file) == 0) {
      opened[file] = files_.size();
      files_.push_back(open_tensor_file(index.parent_path() / file));
      for (const auto& [stored, entry] : files_.back()->tensors()) {
        const auto named = weight_map.find(stored);
        if (named == weight_map.end() || named->second != file) {
          problems.add({.where = fmt::format("{}: tensor '{}'", files_.back()->file().string(), printable(stored)),
                        .what = "a shard holds a tensor that the index does not place there",
                        .expected = named == weight_map.end() ? "an index that names it" : "only in " + named->second,
                        .found = file,
                        .hint = "shards of different models are mixed; fetch or write them again"});
        }
      }
    }
    const size_t shard = opened[file];
    if (files_[shard]->tensors().count(name) == 0) {
      problems.add({.where = fmt::format("{}: tensor '{}'", files_[shard]->file().string(), printable(name)),
                    .what = "the tensor is not in the shard that the index names",
                    .expected = "the tensor",
                    .found = "nothing",
                    .hint = {}});
    }
    file_of_[name] = shard;
  }
  problems.throw_if_any();
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

void write_weight_files(const fs::path& directory, const std::vector<TensorToStore>& tensors, uint64_t shard_bytes) {
  std::vector<std::vector<TensorToStore>> shards(1);
  uint64_t in_shard = 0;
  uint64_t total = 0;
  for (const TensorToStore& item : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(item.tensor.numel()) * c10::elementSize(item.dtype);
    if (!shards.back().empty() && in_shard + bytes > shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(item);
    in_shard += bytes;
    total += bytes;
  }
  if (shards.size() == 1) {
    write_safetensors(directory / kSingle, tensors);
    return;
  }
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const TensorToStore& item : shards[i]) {
      index["weight_map"][item.name] = file;
    }
    write_safetensors(directory / file, std::move(shards[i]));
  }
  write_json(directory / kIndex, index);
}

}  // namespace draftsmith::model
