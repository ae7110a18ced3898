// A file of named tensors: what the readers of weight files have in common.
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

// What a file says of one tensor.
struct TensorEntry {
  std::string dtype;           // as stored: "F32", "BF16", ...
  std::vector<int64_t> shape;  // [] is a scalar
  uint64_t begin = 0;          // bytes from the start of the data section, where the file has one
  uint64_t end = 0;            // exclusive
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const std::filesystem::path& file() const = 0;
  virtual const std::map<std::string, TensorEntry>& tensors() const = 0;
  // The tensor as it is stored, on the CPU, over the file's own memory where that is possible, which then lives as long
  // as the tensor: it must not be written to. Errors: std::logic_error for an unknown name; UserError when the stored
  // type is not one that weights have.
  virtual at::Tensor stored(const std::string& name) const = 0;
  // The tensor's bytes, contiguous, valid as long as this object.
  virtual std::span<const std::byte> bytes(const std::string& name) const = 0;
  // All tensors are going to be read: a mapped file begins to come from disk.
  virtual void will_need() const {}
  // Gives back the memory of what was read from a mapped file; tensors over it stay valid.
  virtual void forget_pages() const {}

  // A contiguous CPU tensor of its own, converted to `dtype` (a float type). Errors: those of stored().
  at::Tensor read(const std::string& name, at::ScalarType dtype) const;
};

}  // namespace draftsmith::model
