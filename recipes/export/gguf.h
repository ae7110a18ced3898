// GGUF files, version 3: llama.cpp's format for models, written for Llama, its relatives and GPT-2. A file holds typed
// values by name, then tensors whose dimensions are listed from the fastest to the slowest, each at a multiple of 32
// bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::recipes {

// ---- The file

// Types of tensors, with the format's numbers. Q8_0: blocks of 32 numbers of a row, each a factor in fp16 and 32
// integers of 8 bits, 34 bytes in all.
enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };
constexpr int64_t kBlockValues = 32;
constexpr int64_t kBlockBytes = 34;

using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<float>,
                               std::vector<int32_t>, std::vector<uint8_t>>;
using GgufValues = std::vector<std::pair<std::string, GgufValue>>;  // in the order of the file

// A tensor of a file, made of parameters of a model. The last size of a Q8_0 tensor is a multiple of 32.
struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // as in LibTorch: the last dimension is contiguous
  GgufType type = GgufType::kF32;
  std::vector<std::string> parameters = {};  // canonical names, joined along the first dimension
  int64_t rotated_heads = 0;                 // heads whose rows are stored in llama.cpp's order; 0: none
};

// Writes a file, and asks for each tensor when its turn comes: fp32 on the CPU, of its shape. The file appears when it
// is complete. Errors: UserError if it cannot be created, RunError if a write fails or a value is not finite in the
// tensor's type, and what `values_of` throws.
void write_gguf(const std::filesystem::path& file, const GgufValues& values, const std::vector<GgufTensor>& tensors,
                const std::function<at::Tensor(const GgufTensor&)>& values_of);

// Returns the blocks of numbers, whose count is a multiple of 32. The factor is the largest magnitude / 127 rounded to
// fp16; integers are rounded by the factor before it is, halves away from zero, as llama.cpp does.
std::string to_blocks(std::span<const float> values);

// Returns the type of numbers that are stored as they are; fp32 for blocks.
at::ScalarType scalar_type_of(GgufType type);

// Returns the type's name as llama.cpp writes it: "F32", "F16", "BF16", "Q8_0".
std::string gguf_type_name(GgufType type);

// ---- The model
// llama.cpp rotates neighbouring numbers of a head in place of its two halves in some families, Llama among them. Rows
// of their queries and keys are stored in another order. Queries, keys and values of a GPT-2 or Phi-3 are one tensor.

// Reports a problem at `where` for each property that llama.cpp's model of the family lacks, and for other families.
void check_gguf(const std::string& where, const model::TransformerConfig& config, Problems& problems);

// Returns the tensors of a model that check_gguf() has no problem with, in a file of that type: vectors and positions
// are fp32, and rows that are no whole blocks are fp16 in a file of blocks.
std::vector<GgufTensor> gguf_tensors(const model::TransformerConfig& config, GgufType type);

// Returns the values that describe the model, without its tokenizer.
GgufValues gguf_settings(const model::TransformerConfig& config, const std::string& name, GgufType type);

// Returns how much slower each pair of a head turns than without scaling, [K/2]; undefined where llama.cpp needs none.
at::Tensor rope_factors(const model::TransformerConfig& config);

// Returns the values of a tensor, fp32 on the CPU; of one without parameters rope_factors().
at::Tensor to_gguf(const GgufTensor& tensor, const model::TransformerModel& model);

// Returns the values that describe the tokenizer and the chat template in a model directory; without a tokenizer, those
// of a model that reads ids alone. Ids above its pieces, up to the model's `vocabulary`, become unused tokens. Errors:
// UserError for a tokenizer other than SentencePiece (llama.cpp's "llama" and "t5") and byte-level BPE ("gpt2").
GgufValues gguf_tokenizer(const std::filesystem::path& directory, int64_t vocabulary);

}  // namespace draftsmith::recipes
