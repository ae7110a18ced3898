// The layout of parameters in a family's files: transposed, or joined with others into one tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith::model {

// The way in which several parameters of equal shape share one stored tensor, along their outputs.
enum class Join {
  kNone,
  kBlocks,  // one after the other (GPT-2's c_attn)
  kHeads,   // head by head: the first head of each, then the second of each (GPT-NeoX's and BLOOM's query_key_value)
};

// The place of a parameter in the files.
struct StoredTensor {
  std::string name;
  bool transposed = false;  // matrices are stored [in,out] (GPT-2's Conv1D)
  Join join = Join::kNone;
  int64_t part = 0;   // which of the joined ones
  int64_t parts = 1;  // how many are joined
};

// Returns the shape in the file of a parameter of shape `shape`.
std::vector<int64_t> stored_shape(const std::vector<int64_t>& shape, const StoredTensor& stored);

// Returns the parameter in a stored tensor, a view if possible. `heads` is read for Join::kHeads.
at::Tensor take_parameter(const at::Tensor& stored, const StoredTensor& where, int64_t heads);

// Returns the stored tensor of its parameters, in the order of their parts.
at::Tensor join_parameters(const std::vector<at::Tensor>& parameters, const StoredTensor& where, int64_t heads);

}  // namespace draftsmith::model
