// Weights, written: safetensors files, with an aligned header, under a temporary name that is then renamed, and those
// of a model directory. Their reader is model/files/weight_files.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// A tensor to be stored, and its type in the file.
struct TensorToStore {
  std::string name;
  at::Tensor tensor;
  at::ScalarType dtype = at::kFloat;
};

// Writes a safetensors file with metadata {"format": "pt"} atomically: a reader sees the old file or the whole new one.
// Tensors are converted and written one at a time, widest type first, then by name.
// Errors (RunError): a value that is not finite in the stored type (names the tensor; nothing is written), a failed
// write.
void write_safetensors(const std::filesystem::path& file, std::vector<TensorToStore> tensors);

// Writes tensors as model.safetensors or, if they take more than `shard_bytes`, as shards of at most that many bytes
// (at least one tensor in each) with an index. Errors: as write_safetensors.
void write_weight_files(const std::filesystem::path& directory, const std::vector<TensorToStore>& tensors,
                        uint64_t shard_bytes);

}  // namespace draftsmith::model
