// Initial weights of a model that is trained from scratch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/aten.h"
#include "model/transformer/parameters.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// The normal distribution of a parameter's initial values; a deviation of 0 is a constant.
struct InitialValues {
  double mean = 0;
  double deviation = 0;
};

// Returns the distribution of one parameter. T5's own initialisation (Mesh TensorFlow's; unscaled attention
// makes the query's deviation sqrt(K) smaller than the key's): normal with deviation f·(D K)^-½ for queries, f·D^-½ for
// keys, values, feed-forward inputs and relative biases, f·(H K)^-½ and f·F^-½ for the outputs, 1 for embeddings and
// D^-½ for an untied head unless config.embedding_std says otherwise; norms are f, their biases 0. f =
// config.initializer_factor. Decoder-only models: deviation config.initializer_range, norms 1, biases 0.
InitialValues initial_values(const ParameterSpec& spec, const TransformerConfig& config);

// Draws all parameters from initial_values(): by canonical name, fp32 on the CPU.
std::map<std::string, at::Tensor> initial_parameters(const TransformerConfig& config, uint64_t seed);

// Start of a projection of another model's states [D,D_L]: random numbers, or the unit matrix, cut or padded with zeros
// where the widths differ.
enum class ProjectionStart { kRandom, kIdentity };

// Returns the start of one projection, fp32 on the CPU. Random numbers have deviation D_L^-0.5, which keeps the size of
// the projected states.
at::Tensor initial_projection(const ParameterSpec& spec, ProjectionStart start, uint64_t seed);

}  // namespace draftsmith::model
