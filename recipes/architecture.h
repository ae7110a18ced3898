// Shape of a model that a recipe trains from random weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::recipes {

struct ArchitectureOptions {
  std::string family = "t5";
  int64_t width = 256;
  int64_t heads = 4;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_width = 64;
  int64_t ff_width = 1024;
  int64_t encoder_layers = 4;
  int64_t decoder_layers = 4;
  std::optional<std::string> activation;
  bool gated = false;
  bool tied_head = true;
  int64_t relative_buckets = 32;
  int64_t relative_max_distance = 128;
  int64_t max_positions = 1024;
  double rotary_base = 10000.0;
  double rotary_share = 1.0;
  bool parallel_residual = true;
  double dropout = 0.1;
  double initializer_factor = 1.0;
  std::optional<double> embedding_std;
  uint64_t seed = 1;
  static Fields<ArchitectureOptions> fields();
};

// Ids of a tokenizer that a model's configuration contains; -1 stands for none.
struct SpecialIds {
  int64_t vocabulary = 0;
  int64_t pad = 0;
  int64_t eos = 1;
  int64_t bos = -1;
};

// Returns the configuration of a new model; `options` must be valid.
model::TransformerConfig make_config(const ArchitectureOptions& options, const SpecialIds& ids);

}  // namespace draftsmith::recipes
