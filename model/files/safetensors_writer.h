// Safetensors files whose tensors are not in memory at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/files/safetensors.h"

namespace draftsmith::model {

// A tensor of a file that is yet to be written.
struct TensorPlace {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// Returns the order in which write_safetensors() stores tensors: widest type first, then by name.
std::vector<TensorPlace> in_file_order(std::vector<TensorPlace> places);

// Writes a safetensors file of tensors in this order, and asks for each when its turn comes. `tensor` returns one of
// the place's shape. Errors: as write_safetensors() of tensors, and what `tensor` throws; then nothing is written.
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorPlace>& places,
                       const std::function<at::Tensor(const TensorPlace&)>& tensor);

}  // namespace draftsmith::model
