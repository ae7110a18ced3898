// The parts of a transformer over one set of parameters: embedding, encoder, decoder, head. TransformerModel's
// functions call them. Also the mode of LibTorch that decoding runs in. Private to model/.
#pragma once

#include <optional>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "model/layers/parameter_source.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/transformer/forward.h"
#include "model/transformer/stack.h"

namespace draftsmith::model {

// Turns off gradients and all autograd bookkeeping: decoding is many small operations. Unlike InferenceMode it makes
// ordinary tensors, which callers may change in place.
class DecodingGuard {
 private:
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

class TransformerParts {
 public:
  // With an arena in `building`, blocks and head are packed one by one as they are built.
  TransformerParts(const TransformerConfig& config, const Building& building);

  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return embedding_.device(); }

  // Returns rows of the embedding table alone: tokens int64 [...] -> fp32 [...,D].
  at::Tensor token_embeddings(const at::Tensor& tokens) const;
  // Returns hidden state 0 of whole sequences, or of a step's tokens [B,L] at the layout's positions.
  at::Tensor embed(const TokenBatch& batch) const;
  at::Tensor embed(const at::Tensor& tokens, const StepLayout& layout) const;
  // Returns the encoder states of embedded whole sequences. [B,S,D]
  at::Tensor encode(const TokenBatch& source, Dropout& dropout) const;
  ForwardOutput forward(const ForwardInput& input, Dropout& dropout) const;
  // Applies the final norm and output scale. [...,D]
  at::Tensor finish(const at::Tensor& hidden) const;
  // [...,D] -> [...,V]
  at::Tensor head(const at::Tensor& hidden) const;
  const VocabularyRows& vocabulary_rows() const { return vocabulary_rows_; }

  // Returns K/V of encoder states for all decoder layers.
  std::vector<CrossCache> cross_caches(const at::Tensor& memory) const;
  // Checks a step, and fits the tables of positions to it.
  void prepare(LayerRange layers, const StepLayout& layout, DecoderState& state) const;
  // Does the work of a step, or of a part of one, that has been prepared; it may be recorded on the device.
  // DecoderState::count_runs() is to follow.
  StepOutput run(const StepPart& part, const StepLayout& layout, DecoderState& state) const;
  void write_kv(LayerRange layers, const at::Tensor& hidden, const StepLayout& layout, DecoderState& state) const;
  // For a model without an encoder of its own: returns another model's encoder states [B,S,D_L] as its own [B,S,D].
  at::Tensor project_encoder(const at::Tensor& states) const;
  // For a Tandem secondary: writes K/V from the primary's representations.
  void write_primary(const std::vector<at::Tensor>& representations, const StepLayout& layout,
                     DecoderState& state) const;

  void pack();
  void unpack();

 private:
  // Returns whether steps are computed by run_on_cpu(): all layers are packed for it
  // (model/transformer/cpu_decoder.cpp).
  bool takes_cpu_steps() const;
  StepOutput run_on_cpu(const StepPart& part, const StepLayout& layout, DecoderState& state) const;
  // Writes hidden state 0 of a step's tokens: [B*L,D].
  void embed_on_cpu(const at::Tensor& tokens, const StepLayout& layout, float* to) const;
  // Returns whether an encoder's layers over these embedded sources are one program on the CPU.
  bool encodes_by_program(const at::Tensor& hidden) const;
  // Makes the tables that the states of a packed model begin with on a CPU.
  void keep_first_positions();
  // Makes the state's tables of positions long enough for a step. Like the caches they double, so that a high limit
  // costs no memory.
  void fit_positions(const StepLayout& layout, DecoderState& state) const;
  // Returns the positions of a step's tokens [B*L] if queries and keys are rotated by them, otherwise nothing.
  std::vector<int64_t> rotary_positions(const StepLayout& layout) const;
  at::Tensor embed_at(const at::Tensor& tokens, const std::function<at::Tensor()>& positions) const;
  // Returns the states that a forward pass cross-attends to; undefined for decoder-only models.
  at::Tensor memory(const ForwardInput& input, Dropout& dropout) const;

  const TransformerConfig& config_;
  at::ScalarType dtype_ = at::kFloat;
  at::Tensor embedding_;  // [V,D]; of the stored type where it was loaded for decoding, its rows converted when used
  VocabularyRows vocabulary_rows_;
  at::Tensor positions_;  // [P,D]; undefined unless Positions::kLearned
  std::optional<NormLayer> embedding_norm_;
  std::optional<Stack> encoder_;
  Linear encoder_projection_;  // of encoder-decoders without an encoder
  Stack decoder_;
  Linear head_;
  PositionTables first_positions_;  // of a packed model, whose weights do not change; else of no position
};

}  // namespace draftsmith::model
