// The shape of a model that a recipe trains from random weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"
#include "model/transformer_config.h"

namespace draftsmith::recipes {

struct ArchitectureOptions {
  std::string family = "t5";
  int64_t width = 256;
  int64_t heads = 4;
  int64_t head_width = 64;
  int64_t ff_width = 1024;
  int64_t encoder_layers = 4;
  int64_t decoder_layers = 4;
  std::string activation = "relu";
  bool gated = false;
  bool tied_head = true;
  int64_t relative_buckets = 32;
  int64_t relative_max_distance = 128;
  double dropout = 0.1;
  double initializer_factor = 1.0;
  std::optional<double> embedding_std;
  uint64_t seed = 1;
  static Fields<ArchitectureOptions> fields();
};

// The configuration for a tokenizer's vocabulary, pad and EOS ids.
model::TransformerConfig make_config(const ArchitectureOptions& options, int64_t vocabulary, int64_t pad, int64_t eos);

}  // namespace draftsmith::recipes
