// The weights of a Hugging Face model directory: model.safetensors, or shards named by model.safetensors.index.json;
// otherwise the older pytorch_model.bin, or its shards.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/files/safetensors.h"

namespace draftsmith::model {

class WeightFiles {
 public:
  // Opens and checks every file. Errors (UserError): no weights in the directory, a malformed file, an index that names
  // a file outside the directory or a file that is missing, a tensor that is not in the shard the index names, in two
  // shards, or in a shard but not in the index.
  explicit WeightFiles(const std::filesystem::path& directory);

  // Returns the names of all tensors, sorted, each with its index into files().
  const std::map<std::string, size_t>& tensors() const { return file_of_; }
  bool contains(const std::string& name) const { return file_of_.count(name) != 0; }
  const TensorEntry& entry(const std::string& name) const;
  // "DIR/model.safetensors: tensor 'name'", for messages.
  std::string where(const std::string& name) const;
  // Returns the tensor as it is stored; see TensorFile::stored.
  at::Tensor stored(const std::string& name) const { return files_[file_of_.at(name)]->stored(name); }
  // Applies to all files; see TensorFile.
  void will_need() const;
  void forget_pages() const;

  // Returns the tensor's bytes.
  std::span<const std::byte> bytes(const std::string& name) const;

  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }

 private:
  void open_shards(const std::filesystem::path& index);

  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string, size_t> file_of_;  // tensor -> index into files_
};

// Writes tensors as model.safetensors or, if they take more than `shard_bytes`, as shards of at most that many bytes
// (at least one tensor in each) with an index. Errors: as write_safetensors.
void write_weight_files(const std::filesystem::path& directory, const std::vector<TensorToStore>& tensors,
                        uint64_t shard_bytes);

}  // namespace draftsmith::model
