// Models in GGUF: which parameters make which tensors, and the values that llama.cpp needs to run them. Llama and
// GPT-2.
//
// llama.cpp rotates neighbouring numbers of a head in place of its two halves, so rows of a Llama's queries and keys
// are stored in another order. GPT-2's queries, keys and values are one tensor.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "model/transformer/transformer_model.h"
#include "recipes/export/gguf/gguf_file.h"

namespace draftsmith::recipes {

// A tensor of the file, made of parameters of the model.
struct GgufTensor {
  std::string name;
  std::vector<std::string> parameters;  // canonical names, joined along the first dimension
  int64_t rotated_heads = 0;            // heads whose rows are stored in llama.cpp's order; 0: none
  bool precise = false;                 // fp32 in every file
};

// Reports a problem at `where` for each property that llama.cpp's model of the family lacks, and for other families.
void check_gguf(const std::string& where, const model::TransformerConfig& config, Problems& problems);

// Returns the tensors of a model that check_gguf() has no problem with, but rope_freqs.weight.
std::vector<GgufTensor> gguf_tensors(const model::TransformerConfig& config);

// Returns the values that describe the model, without its tokenizer.
GgufValues gguf_settings(const model::TransformerConfig& config, const std::string& name, GgufType type);

// Returns how much slower each pair of a head turns than without scaling, [K/2]; undefined where llama.cpp needs none.
at::Tensor rope_factors(const model::TransformerConfig& config);

// Returns a file's tensor, fp32 on the CPU, and parameters from such a tensor.
at::Tensor to_gguf(const GgufTensor& tensor, const model::TransformerModel& model);
void from_gguf(const GgufTensor& tensor, const at::Tensor& values, model::TransformerModel& model);

// Returns the place of a tensor in a file of that type: vectors and positions are fp32, and rows that are no whole
// blocks are fp16 in a file of blocks.
GgufPlace gguf_place(const GgufTensor& tensor, const at::Tensor& values, GgufType type);

}  // namespace draftsmith::recipes
