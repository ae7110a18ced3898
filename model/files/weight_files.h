// The weights of a Hugging Face model directory, read: model.safetensors, or shards named by
// model.safetensors.index.json; otherwise the older pytorch_model.bin, or its shards. Before it the interface of the
// readers of one file, and that of safetensors files (github.com/huggingface/safetensors, format 0.4).
// A safetensors file is a little-endian header length, a JSON header of names, types, shapes and byte ranges, then the
// tensors. It is read through a memory mapping, one tensor at a time; the header is checked before it is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "base/files.h"

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
// Adds a problem at `where` for each tensor that is missing, has another shape, or is not expected.
void check_shapes(const Shapes& expected, const Shapes& found, const std::string& where, const std::string& hint,
                  Problems& problems);

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
  std::filesystem::path file_;
  MappedFile mapping_;
  int64_t data_begin_ = 0;  // bytes from the start of the file
  std::map<std::string, TensorEntry> tensors_;
};

// pytorch_model.bin: a state dict as torch.save writes it (the zip form of PyTorch 1.6 and later), tensors only
// (model/files/pickled_weights.cpp).

// Maps the file and reads the description of its tensors, which keep the strides they were saved with. Errors
// (UserError): not a zip file (the form before 1.6 included), a damaged or compressed archive, a damaged pickle,
// anything in it but a dictionary of names to dense tensors, tensors that reach outside their storage.
std::unique_ptr<TensorFile> open_pickled_weights(const std::filesystem::path& file);

inline constexpr const char* kWeightsFile = "model.safetensors";

class WeightFiles {
 public:
  // Opens and checks every file. An index decides where each tensor is read; what it does not place there is ignored
  // with a warning. Of an index and a single file beside it, the single one is read unless it lacks tensors of the
  // index. Errors (UserError): no weights in the directory, a malformed file, an index that names a file outside the
  // directory or a file that is missing, a tensor that is not in the shard that the index names.
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

}  // namespace draftsmith::model
