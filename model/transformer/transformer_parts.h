// The parts of a transformer over one set of parameters: embedding, encoder, decoder, head, which TransformerModel's
// functions run. Also the mode of LibTorch that decoding runs in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "model/layers/parameter_source.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/transformer/stack.h"

namespace draftsmith::model {

// Positions and norm that embedded tokens get before a stack's first layer.
struct StackInput {
  StackInput() = default;
  // `stack`: "encoder" or "decoder". `table` of sinusoids [P,D]: undefined unless Positions::kSinusoid.
  StackInput(const TransformerConfig& config, const std::string& stack, const at::Tensor& table,
             const Building& building);

  // Returns the number of positions that the table holds.
  int64_t count() const { return positions.size(0) - first_row; }

  at::Tensor positions;   // [offset+P,D], added; undefined: none
  int64_t first_row = 0;  // position 0's
  std::optional<NormLayer> norm;
};

// Turns off gradients and all autograd bookkeeping: decoding is many small operations. Unlike InferenceMode it makes
// ordinary tensors, which callers may change in place.
class DecodingGuard {
 private:
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

// Marks a point of long work (base/signals.h) before a layer, and where gradients come back through `hidden`. On
// devices work is only queued.
void work_point_both_ways(const at::Tensor& hidden);

struct TransformerParts {
  static constexpr int64_t kFirstPositions = 65;  // that a decode state's tables begin with

  // With an arena in `building`, blocks and head are packed one by one as they are built.
  TransformerParts(const TransformerConfig& config, const Building& building);

  // Makes the tables that the states of a packed model begin with on a CPU.
  void keep_first_positions();

  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  at::Tensor embedding;  // [V,D]; of the stored type where it was loaded for decoding, its rows converted when used
  double embedding_scale = 1;      // factor on embedded tokens
  VocabularyRows vocabulary_rows;  // of the head
  VocabularyRows embedded_rows;    // the same, but complete where the embedding is a target's
  StackInput encoder_input;        // where there is an encoder
  StackInput decoder_input;
  std::optional<Stack> encoder;
  Linear encoder_projection;  // of encoder-decoders without an encoder
  Linear feature_projection;  // of features drafters, as the next
  NormLayer feature_norm;
  at::Tensor feature_mask;     // [2,D], in block mode, as the next
  at::Tensor markov_previous;  // [rows,r]; undefined: no bias
  Linear markov_next;          // [rows,r]
  Stack decoder;
  Linear head;
  PositionTables first_positions;  // of a packed model, whose weights do not change; else of no position

 private:
  void read_head(const TransformerConfig& config, const Building& building);
};

}  // namespace draftsmith::model
