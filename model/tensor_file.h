// A file of named tensors: what the readers of weight files have in common.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include <ATen/ATen.h>

#include "model/safetensors.h"

namespace draftsmith::model {

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const std::filesystem::path& file() const = 0;
  virtual const std::map<std::string, TensorEntry>& tensors() const = 0;
  // A contiguous CPU tensor of its own, converted to `dtype` (a float type).
  virtual at::Tensor read(const std::string& name, at::ScalarType dtype) const = 0;
  // The tensor's bytes, contiguous, valid as long as this object.
  virtual std::span<const std::byte> bytes(const std::string& name) const = 0;
};

// By what the file's name ends with: ".safetensors", else a pickled state dict. Errors: those of the readers.
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& file);

}  // namespace draftsmith::model
