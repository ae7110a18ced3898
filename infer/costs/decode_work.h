// Bytes that decoding must read and operations that it must do: shapes of the models times what a run counted (Kim et
// al. 2023, BiLD, figure 8; Leviathan et al. 2023, section 3.4). Operations are those of matrix products and attention.
// Bytes are weights, once for each step of a batch, and keys and values, once for each step of a row. The rest is small
// beside them and left out, as is work beyond need, for padding or masked pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "infer/decode_options.h"
#include "infer/loop/decode_stats.h"
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

// In what follows, `type` is the type of the weights: kChar stands for matrices of a byte a number with a scale in fp32
// for each output, and fp32 for all else.

// Returns the bytes of weights that one decoding step reads: the decoder without the projections of encoder states,
// and the head. Rows of the embedding do not count, unless the head is the embedding.
int64_t step_weight_bytes(const model::TransformerConfig& config, c10::ScalarType type);

// Returns the work of the encoder on a source.
Work encoder_work(const model::TransformerConfig& config, c10::ScalarType type, int64_t source);
// Returns the work of projecting a source's encoder states to the keys and values of cross-attention, of models without
// an encoder of their own also to their width.
Work cross_attention_work(const model::TransformerConfig& config, c10::ScalarType type, int64_t source);

// Returns the operations of attention scores and of their product with the values, for one row and layer.
double attention_operations(const model::TransformerConfig& config, double queries, double keys);

struct ModelShape {
  const model::TransformerConfig* config = nullptr;  // must outlive this
  c10::ScalarType type = at::kFloat;                 // of the weights
};

struct DecodingShapes {
  ModelShape target;
  std::optional<ModelShape> drafter = {};  // absent: no model of its own drafts (n-gram tables, look-up, exits)
  int64_t exit_layer = 0;                  // target's layers that draft, or of ppd those before candidates; 0: none
  Algorithm algorithm = Algorithm::kPlain;
  bool reads_each_layer = false;  // calm measures margins, so the head reads every layer that a token runs
  double sources_together = 1;    // sources whose encoders or prompts run in one pass, on average
  int64_t prompt_chunk = 256;     // most tokens of a prompt in one pass (prefill_chunk())
};

// A line that was decoded.
struct DecodedLine {
  int64_t source = 0;  // tokens of the source or prompt
  const DecodeStats* stats = nullptr;
};

struct DecodeWork {
  Work input;   // encoders, projections of their states, prompts: before the first token
  Work draft;   // drafter's steps, and a Tandem secondary's reading of its primary
  Work target;  // target's steps
  int64_t emitted = 0;
  double draft_tokens = 0;   // that went through the drafter; 0 if the target's own layers draft
  double target_tokens = 0;  // that went through the target

  Work decoding() const;
  Work total() const;
  // Returns c^ of Leviathan et al.: the drafter's operations for a token over the target's. NaN without drafts, and
  // where the target's own layers draft.
  double operations_ratio() const;
};

// Returns the work of the lines. It is exact but for three means: of calm, attention and shared steps of batches take
// the mean layer of exit; of ppd, branches attend to as many keys as the tokens they branch from; exits are taken to
// have the model's own head.
DecodeWork decode_work(const DecodingShapes& shapes, std::span<const DecodedLine> lines);

}  // namespace draftsmith::infer
