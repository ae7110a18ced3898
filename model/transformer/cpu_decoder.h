// Decoding steps of a packed model on a CPU, from tokens to logits. They read the model's parts by reference and
// allocate nothing from the second step of a size on, apart from what callers keep.
#pragma once

#include <optional>
#include <span>

#include "model/transformer/decoder_state.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/transformer/language_model.h"
#include "model/transformer/stack.h"

namespace draftsmith::model {

class CpuDecoder {
 public:
  struct Parts {
    const TransformerConfig& config;
    const at::Tensor& embedding;  // [V,D] of any float type
    const at::Tensor& positions;  // [P,D] fp32; undefined: none
    const std::optional<NormLayer>& embedding_norm;
    const VocabularyRows& vocabulary_rows;
    const Stack& decoder;
    const Linear& head;
  };
  explicit CpuDecoder(const Parts& parts) : parts_(parts) {}

  // Returns whether steps can be computed here: all layers are packed, in fp32 or smaller.
  bool takes_steps() const;
  // Computes a step, or a part of one. The state has been prepared for it (TransformerParts::prepare).
  StepOutput run(const StepPart& part, const StepLayout& layout, DecoderState& state) const;

 private:
  // Writes hidden state 0 of a step's tokens: [B*L,D].
  void embed(const at::Tensor& tokens, const StepLayout& layout, float* to) const;
  void begin(const StepLayout& layout, DecoderState& state, LayerRange layers) const;

  const Parts parts_;
};

}  // namespace draftsmith::model
