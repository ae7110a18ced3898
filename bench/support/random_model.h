// Models with random weights that are made on their device, so that large ones are there in a moment.
#pragma once

#include <memory>
#include <string>

#include "model/transformer/transformer_model.h"

namespace draftsmith::bench {

// Normal random numbers on a device, the same on each and in every process. They repeat a block of a million numbers,
// which has a prime length: so no two rows of a matrix are equal.
class RandomNumbers {
 public:
  explicit RandomNumbers(at::Device device);

  // Returns numbers of mean 0 for a name, which decides where they begin in the block.
  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double deviation, at::ScalarType type) const;

 private:
  at::Tensor block_;  // fp32
};

// Returns a model for decoding only, as load_model() would make it of a directory. Weights follow the family's own
// initialisation, by RandomNumbers and their names.
std::unique_ptr<model::TransformerModel> random_decoder(const model::TransformerConfig& config, at::Device device,
                                                        at::ScalarType type);

// Returns a model in fp32 whose parameters take gradients, with the same weights.
std::unique_ptr<model::TransformerModel> random_trainee(const model::TransformerConfig& config, at::Device device);

}  // namespace draftsmith::bench
