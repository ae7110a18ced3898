// The text of a batch's rows for a model of block attention, which reads each block of γ tokens once the text has all
// of it, and keeps its states: what decoding with block prediction and with deep Tandems has in common.
//
// Letters: B rows, L tokens of a step, W width of the kept states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

class BlockText {
 public:
  // Begins empty rows of up to `capacity` tokens. Keeps the model's states behind its final norm, through `projection`
  // [W,D] if it is defined. The model must outlive this object.
  BlockText(TransformerModel& model, at::Tensor projection, int64_t rows, int64_t capacity);

  int64_t block() const { return block_; }
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t capacity() const { return capacity_; }
  // Returns the tokens of a row, of which the model has read the whole blocks.
  int64_t length(int64_t row) const { return static_cast<int64_t>(tokens_.at(static_cast<size_t>(row)).size()); }

  // Adds the first new_tokens[b] of the tokens [B,L] to row b. Runs the model on the blocks that they complete.
  // Errors: std::logic_error for a row that would pass the capacity.
  void append(const at::Tensor& tokens, std::span<const int64_t> new_tokens);
  // As DecodeState. Blocks that lose a token are read again once they are whole.
  void rollback(std::span<const int64_t> lengths);
  void select_rows(std::span<const int64_t> rows);

  // Returns the kept states [n,W] of a row's tokens first..first+n-1, which must lie in whole blocks.
  at::Tensor states(int64_t row, int64_t first, int64_t count) const;
  // Returns kept states [B,L,W] of counts[b] tokens of each row, at most L, from first[b] on, which may lie before the
  // text; zeros there and behind the counts.
  at::Tensor states(std::span<const int64_t> first, std::span<const int64_t> counts, int64_t tokens) const;

  // Gives the model's state back (LanguageModel::give_back): the last call.
  void give_back() { model_.give_back(std::move(state_)); }

 private:
  void keep(const at::Tensor& states, std::span<const int64_t> first, std::span<const int64_t> counts);

  TransformerModel& model_;
  at::Tensor projection_;
  int64_t block_;
  int64_t capacity_;
  std::vector<std::vector<int64_t>> tokens_;  // [B] on the host
  std::unique_ptr<DecodeState> state_;        // of whole blocks
  at::Tensor kept_;                           // [B,T,W] of whole blocks; undefined: none yet
};

}  // namespace draftsmith::model
