// Bytes that decoding must read and operations that it must do, by a model's configuration: the numbers behind a
// roofline.
//
// Letters: B rows, L tokens of the step, T tokens before it, S tokens of a source or prompt.
#pragma once

#include <cstdint>

#include "model/transformer/transformer_config.h"

namespace draftsmith::infer {

struct Work {
  double weight_bytes = 0;
  double cache_bytes = 0;  // keys and values that attention reads
  double operations = 0;   // additions and multiplications of matrix products and attention
  double attention = 0;    // of these, attention's

  double bytes() const { return weight_bytes + cache_bytes; }
  Work& operator+=(const Work& added);
  Work times(double count) const;
};

// Parts of decoders that ran: all decoder layers have the same shapes, so only their number counts.
struct LayerCounts {
  double layer_passes = 0;  // layers whose weights were read
  double layer_tokens = 0;  // tokens through layers: a token through N of them counts N times
  double layer_keys = 0;    // cached tokens read by layers, those of sources included
  double layer_pairs = 0;   // pairs of a token and a key that it sees, in all layers
  double head_passes = 0;   // readings of the head
  double head_tokens = 0;   // tokens with logits
  double kv_passes = 0;     // layers of which only the projections to keys and values were read
  double kv_tokens = 0;     // tokens through these
};

struct StepSize {
  int64_t rows = 1;    // B
  int64_t tokens = 1;  // L, of each row
  int64_t length = 0;  // T
  int64_t source = 0;  // S, of encoder-decoders
};

// In what follows, `type` is the type of the weights: kChar stands for matrices of a byte a number with a scale in fp32
// for each output, and fp32 for all else.

// Returns the work of the parts that ran.
Work layers_work(const model::TransformerConfig& config, c10::ScalarType type, const LayerCounts& counts);

// Returns the bytes of weights that one decoding step reads: the decoder without the projections of encoder states,
// and the head. Rows of the embedding do not count, unless the head is the embedding.
int64_t step_weight_bytes(const model::TransformerConfig& config, c10::ScalarType type);

// Returns the work of a step with logits everywhere.
Work step_work(const model::TransformerConfig& config, c10::ScalarType type, const StepSize& size);

// Returns the work of the encoder on sources of S tokens.
Work encoder_work(const model::TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source);
// Returns the work of projecting encoder states to the keys and values of cross-attention, of models without an encoder
// of their own also to their width.
Work cross_attention_work(const model::TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t source);
// Returns the work of a decoder-only model on prompts of S tokens, without logits.
Work prompt_work(const model::TransformerConfig& config, c10::ScalarType type, int64_t rows, int64_t prompt);

// Returns the work of projecting so many of the primary's representations to the keys and values of all layers of a
// Tandem secondary (model/kinds/tandem.h).
Work primary_work(const model::TransformerConfig& config, c10::ScalarType type, double tokens);

// Returns the operations of attention scores and of their product with the values, for one row and layer.
double attention_operations(const model::TransformerConfig& config, double queries, double keys);

}  // namespace draftsmith::infer
