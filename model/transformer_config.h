// The one description of every family: what the block, the stacks and the heads are built from. A family is a reader
// that fills this in from its config.json, and a table of weight names (model/families/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace draftsmith::model {

enum class Norm { kRms, kLayer };
enum class Activation { kRelu, kGeluTanh, kGelu, kSilu };
// How positions enter: T5's bucketed bias on attention scores. Other kinds arrive with their families.
enum class Positions { kRelativeBias };

struct TransformerConfig {
  std::string family;  // "t5", "mt5": selects names and config keys
  bool encoder_decoder = true;

  int64_t vocabulary = 0;  // V
  int64_t width = 0;       // D  (d_model)
  int64_t heads = 0;       // H
  int64_t head_width = 0;  // K  (d_kv); heads * head_width need not equal width
  int64_t ff_width = 0;    // F  (d_ff)
  int64_t encoder_layers = 0;
  int64_t decoder_layers = 0;  // N

  Norm norm = Norm::kRms;
  double norm_epsilon = 1e-6;
  Activation activation = Activation::kRelu;
  bool gated = false;  // feed-forward act(x W_gate) * (x W_up), T5 v1.1 and mT5
  Positions positions = Positions::kRelativeBias;
  int64_t relative_buckets = 32;
  int64_t relative_max_distance = 128;

  double attention_scale = 1.0;  // factor on q·k; T5: 1
  double output_scale = 1.0;     // factor on the decoder output before the head
  bool tied_head = true;         // the head is the shared embedding

  double dropout = 0.1;             // dropout_rate
  double initializer_factor = 1.0;  // T5's factor on all initial standard deviations
  // Standard deviation of the initial embeddings and head; absent: the family's own (T5: 1.0 and 1.0/head D^-0.5).
  std::optional<double> embedding_std;

  int64_t pad = 0;
  std::vector<int64_t> eos = {1};
  int64_t decoder_start = 0;
  int64_t max_positions = 0;  // 0: unlimited (relative positions)
};

}  // namespace draftsmith::model
