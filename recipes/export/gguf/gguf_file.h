// GGUF files, version 3: llama.cpp's format for models. A file holds typed values by name, then tensors whose
// dimensions are listed from the fastest to the slowest, each at a multiple of 32 bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/aten.h"
#include "base/mapped_file.h"

namespace draftsmith::recipes {

constexpr const char* kGgufEnding = ".gguf";                     // of files' names
constexpr const char* kGgufModelHash = "draftsmith.model_hash";  // value of our files: the hash of the exported model

// Types of tensors, with the format's numbers. Q8_0: blocks of 32 values of a row with a common factor
// (recipes/export/gguf/blocks.h).
enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };

using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<float>,
                               std::vector<int32_t>, std::vector<uint8_t>>;
using GgufValues = std::vector<std::pair<std::string, GgufValue>>;  // in the order of the file

// A tensor of a file that is yet to be written. The last size of a Q8_0 tensor is a multiple of 32.
struct GgufPlace {
  std::string name;
  std::vector<int64_t> shape;  // as in LibTorch: the last dimension is contiguous
  GgufType type = GgufType::kF32;
};

// Writes a file, and asks for each tensor when its turn comes: fp32 on the CPU, of the place's shape. The file appears
// when it is complete. Errors: UserError if it cannot be created, RunError if a write fails or a value is not finite in
// the tensor's type, and what `tensor` throws.
void write_gguf(const std::filesystem::path& file, const GgufValues& values, const std::vector<GgufPlace>& places,
                const std::function<at::Tensor(const GgufPlace&)>& tensor);

// A GGUF file that was opened for reading.
class GgufFile {
 public:
  // Reads values and places. Errors: UserError for a file that is no GGUF of version 3, is truncated, has types other
  // than those above, or places outside the file.
  explicit GgufFile(std::filesystem::path file);

  const GgufValues& values() const { return values_; }
  const std::vector<GgufPlace>& places() const { return places_; }
  // Returns the tensor in fp32, blocks multiplied out. Errors: UserError if the file has no such tensor.
  at::Tensor tensor(const std::string& name) const;

 private:
  std::filesystem::path file_;
  MappedFile mapping_;
  GgufValues values_;
  std::vector<GgufPlace> places_;
  std::vector<uint64_t> begins_;  // of the tensors, in bytes from the beginning of the file
};

// Returns the type of numbers that are stored as they are; fp32 for blocks, whose numbers are multiplied out.
at::ScalarType scalar_type_of(GgufType type);

// Returns the bytes of a tensor in a file.
uint64_t gguf_bytes(const GgufPlace& place);

// Returns the type's name as llama.cpp writes it: "F32", "F16", "BF16", "Q8_0".
std::string gguf_type_name(GgufType type);

}  // namespace draftsmith::recipes
