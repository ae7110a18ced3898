// A file of named tensors: the common interface of the readers of weight files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// The description of one tensor in a file.
struct TensorEntry {
  std::string dtype;           // as stored: "F32", "BF16", ...
  std::vector<int64_t> shape;  // [] is a scalar
  uint64_t begin = 0;          // bytes from the start of the data section, if the file has one
  uint64_t end = 0;            // exclusive
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const std::filesystem::path& file() const = 0;
  virtual const std::map<std::string, TensorEntry>& tensors() const = 0;
  // Returns the tensor as it is stored, on the CPU, over the file's own memory if possible. That memory lives as long
  // as the tensor and must not be written to. Errors: std::logic_error for an unknown name; UserError for a stored type
  // that weights do not have.
  virtual at::Tensor stored(const std::string& name) const = 0;
  // Returns the tensor's bytes, contiguous, valid as long as this object.
  virtual std::span<const std::byte> bytes(const std::string& name) const = 0;
  // Announces that all tensors will be read: a mapped file starts to load from disk.
  virtual void will_need() const {}
  // Releases the memory of the read parts of a mapped file; tensors over it stay valid.
  virtual void forget_pages() const {}

  // Returns a contiguous CPU tensor of its own, converted to `dtype` (a float type). Errors: as stored().
  at::Tensor read(const std::string& name, at::ScalarType dtype) const;
};

}  // namespace draftsmith::model
