// Decoding with a model of block prediction (model/kinds/block_prediction.h), as a language model whose next token may
// be asked for at any place. A block of γ tokens is predicted by one run of the model, over the block before it, so the
// tokens of a block know nothing of each other. The text may end anywhere: the model reads a block once it is whole.
#pragma once

#include <memory>

#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

class BlockPredictionModel final : public LanguageModel {
 public:
  // Errors: std::logic_error unless the transformer has block attention.
  explicit BlockPredictionModel(std::unique_ptr<TransformerModel> transformer);

  int64_t block() const { return transformer_->config().block_attention; }
  const TransformerModel& transformer() const { return *transformer_; }

  const ModelInfo& info() const override { return transformer_->info(); }
  // Errors: std::logic_error, as the next two: the model is decoder-only.
  EncoderStates encode(const TokenBatch& source) override;
  std::unique_ptr<DecodeState> begin(const EncoderStates& source, int64_t capacity, int64_t samples = 1) override;
  std::unique_ptr<DecodeState> begin(int64_t rows, int64_t capacity) override;
  // The logits at a token predict the next one. They are zeros where that is one of the first γ tokens, which nothing
  // predicts. There are no hidden states of single tokens: asking for some is a std::logic_error.
  StepOutput step(const StepInput& input, DecodeState& state) override;
  void give_back(std::unique_ptr<DecodeState> state) override;
  void free_states() override { transformer_->free_states(); }

 private:
  class State;

  std::unique_ptr<TransformerModel> transformer_;
};

}  // namespace draftsmith::model
