// Files of named tensors: the interface of the readers of weight files, and safetensors files
// (github.com/huggingface/safetensors, format 0.4), read and written.
// A safetensors file is a little-endian header length, a JSON header of names, types, shapes and byte ranges, then the
// tensors. It is read through a memory mapping, one tensor at a time; the header is checked before it is used. It is
// written with an aligned header under a temporary name, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "base/files.h"

namespace draftsmith::model {

// ---- The interface of the readers of weight files

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

// Returns the LibTorch type of a stored float type (F16, BF16, F32, F64), or nothing for other types.
std::optional<at::ScalarType> float_type(const std::string& dtype);
// Returns the safetensors name of a float type, int64 or bool. Throws std::logic_error for other types.
std::string stored_dtype_name(at::ScalarType type);
// Returns "[3, 5]".
std::string shape_text(at::IntArrayRef shape);

// Shapes of tensors by name.
using Shapes = std::map<std::string, std::vector<int64_t>>;
Shapes shapes_of(const std::map<std::string, at::Tensor>& tensors);
Shapes shapes_of(const TensorFile& file);
// Adds a problem at `where` for each tensor that is missing, has another shape, or is not expected.
void check_shapes(const Shapes& expected, const Shapes& found, const std::string& where, const std::string& hint,
                  Problems& problems);

// ---- Safetensors files

// An open safetensors file.
class SafetensorsFile final : public TensorFile {
 public:
  // Maps the file and checks its whole header. Errors (UserError, all of them at once): cannot be opened, too short for
  // its header, header over 100 MB, broken JSON, a name twice, an unknown type, a negative or overflowing shape, a byte
  // range out of the file, of another size than the shape and type need, overlapping another or leaving a hole.
  explicit SafetensorsFile(std::filesystem::path file);

  const std::filesystem::path& file() const override { return file_; }
  const std::map<std::string, TensorEntry>& tensors() const override { return tensors_; }
  // Returns a tensor over the mapping. Errors: std::logic_error for an unknown name; UserError when the stored type is
  // not a float type.
  at::Tensor stored(const std::string& name) const override;
  // Returns bytes of the mapping. Errors: std::logic_error for an unknown name.
  std::span<const std::byte> bytes(const std::string& name) const override;
  void will_need() const override { mapping_.will_need(); }
  void forget_pages() const override { mapping_.forget_pages(); }

 private:
  const TensorEntry& entry(const std::string& name) const;

  std::filesystem::path file_;
  MappedFile mapping_;
  int64_t data_begin_ = 0;  // bytes from the start of the file
  std::map<std::string, TensorEntry> tensors_;
};

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

// Throws a RunError that names the tensor if it holds NaN or infinity. `where` names what the tensor belongs to.
void require_finite(const std::string& where, const std::string& name, const at::Tensor& tensor);

}  // namespace draftsmith::model
