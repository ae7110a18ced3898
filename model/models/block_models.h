// Block prediction (Nair et al. 2024, section 5.2): a decoder-only model that alone predicts the next γ tokens at once.
// The text that such models read in blocks, decoding with one, and its directory. Deep Tandems share the text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/files/model_directory.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// The text of a batch's rows for a model of block attention. The model reads each block of γ tokens once the text has
// all of it, and its states are kept. Decoding with block prediction and with deep Tandems has this in common.
//
// Letters: B rows, L tokens of a step, W width of the kept states.
class BlockText : public DecodeState {
 public:
  // Begins empty rows of up to `capacity` tokens. Keeps the model's states behind its final norm, through `projection`
  // [W,D] if it is defined. The model must outlive this object.
  BlockText(TransformerModel& model, at::Tensor projection, int64_t rows, int64_t capacity);

  int64_t block() const { return block_; }
  int64_t rows() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t capacity() const override { return capacity_; }
  // Returns the tokens of a row, of which the model has read the whole blocks.
  int64_t length(int64_t row) const override {
    return static_cast<int64_t>(tokens_.at(static_cast<size_t>(row)).size());
  }

  // Adds the first new_tokens[b] of the tokens [B,L] to row b. Runs the model on the blocks that they complete.
  // Errors: std::logic_error for a row that would pass the capacity.
  void append(const at::Tensor& tokens, std::span<const int64_t> new_tokens);
  // Blocks that lose a token are read again once they are whole.
  void rollback(std::span<const int64_t> lengths) override;
  void select_rows(std::span<const int64_t> rows) override;

  // Returns the kept states [n,W] of a row's tokens first..first+n-1, which must lie in whole blocks.
  at::Tensor states(int64_t row, int64_t first, int64_t count) const;
  // Returns kept states [B,L,W] of counts[b] tokens of each row, at most L, from first[b] on, which may lie before the
  // text; zeros there and behind the counts.
  at::Tensor states(std::span<const int64_t> first, std::span<const int64_t> counts, int64_t tokens) const;

  // Gives the model's state back (LanguageModel::give_back): the last call.
  void give_back() { model_.give_back(std::move(state_)); }

 protected:
  TransformerModel& model_;

 private:
  void keep(const at::Tensor& states, std::span<const int64_t> first, std::span<const int64_t> counts);

  at::Tensor projection_;
  int64_t block_;
  int64_t capacity_;
  std::vector<std::vector<int64_t>> tokens_;  // [B] on the host
  std::unique_ptr<DecodeState> state_;        // of whole blocks
  at::Tensor kept_;                           // [B,T,W] of whole blocks; undefined: none yet
};

// Decodes with a model of block prediction, as a language model whose next token may be asked for at any place. A block
// of γ tokens is predicted by one run of the model, over the block before it, so the tokens of a block know nothing of
// each other. The text may end anywhere: the model reads a block once it is whole.
class BlockPredictionModel final : public LanguageModel {
 public:
  // Errors: std::logic_error unless the transformer has block attention.
  explicit BlockPredictionModel(std::unique_ptr<TransformerModel> transformer);

  int64_t block() const { return transformer_->config().block_attention; }
  const TransformerModel& transformer() const { return *transformer_; }

  const ModelInfo& info() const override { return transformer_->info(); }
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

// Block prediction (Nair et al. 2024, section 5.2, equation 3): a decoder-only model alone predicts the next γ tokens
// at once. Tokens attend to all earlier blocks of γ tokens and to all of their own block, both ways; the hidden state
// at token t predicts token t + γ, so that a block's states predict the whole next block. The first γ tokens of a text
// are predicted by nothing. A TransformerModel with config.block_attention = γ, stored as
// DraftsmithBlockPrediction<architecture> with "draftsmith_block_prediction": {"block": γ} in config.json.
//
// It is also the large part of a deep Tandem (model/models/deep_tandem.h).

// Returns the kind of models of block prediction.
const ModelKind& block_prediction_kind();

// Returns `config` as that of a model of block prediction. Errors (UserError): an encoder-decoder, a Tandem secondary,
// γ below 1.
TransformerConfig block_prediction_config(TransformerConfig config, int64_t block);

// Returns values [B,T,...] moved by `distance` tokens: position t holds the value of position t + distance (before it,
// if negative), or `missing` if that lies in another segment or outside the row. With distance γ - 1 the usual labels
// (token t + 1 at t) become those of block prediction. Differentiable.
at::Tensor shifted(const at::Tensor& values, const TokenBatch& batch, int64_t distance, double missing);

}  // namespace draftsmith::model
