// Bytes and operations of whole decodings: shapes of the models times what a run counted (Kim et al. 2023, BiLD, figure
// 8; Leviathan et al. 2023, section 3.4).
//
// Operations are the additions and multiplications of matrix products and of attention. Bytes are weights, once for
// each step of a batch, and keys and values, once for each step of a row. Left out are activations, embeddings, norms'
// arithmetic, softmax, and what caches and logits are written: small beside the rest. Work that an implementation does
// beyond need, for padding or masked pairs, is left out too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "infer/costs/step_work.h"
#include "infer/loop/decode_stats.h"
#include "infer/methods.h"

namespace draftsmith::infer {

struct ModelShape {
  const model::TransformerConfig* config = nullptr;  // must outlive this
  c10::ScalarType type = at::kFloat;                 // of the weights, as in step_work.h
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

// Returns whether decode_work() knows what the algorithm runs.
bool counts_work(Algorithm algorithm);

// Returns the work of the lines. It is exact but for three means: of calm, attention and shared steps of batches take
// the mean layer of exit; of ppd, branches attend to as many keys as the tokens they branch from; exits are taken to
// have the model's own head.
DecodeWork decode_work(const DecodingShapes& shapes, std::span<const DecodedLine> lines);

}  // namespace draftsmith::infer
