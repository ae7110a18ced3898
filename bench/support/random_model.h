// Models with random weights that are drawn on their device, so that large ones are there in a moment.
#pragma once

#include <memory>

#include "model/transformer/transformer_model.h"

namespace draftsmith::bench {

// Returns a model for decoding only, as load_model() would make it of a directory. Weights follow the family's own
// initialisation; the device's generator draws them.
std::unique_ptr<model::TransformerModel> random_decoder(const model::TransformerConfig& config, at::Device device,
                                                        at::ScalarType type);

// Returns a model in fp32 whose parameters take gradients.
std::unique_ptr<model::TransformerModel> random_trainee(const model::TransformerConfig& config, at::Device device);

}  // namespace draftsmith::bench
