// Logits of given outputs: the model reads each output shifted by one and says at every position what it would expect.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// Texts that a model reads as given.
struct ForcedBatch {
  std::span<const std::vector<int64_t>> sources;  // decoder-only: prompts, not empty
  std::span<const std::vector<int64_t>> outputs;  // one for each source
  std::vector<int64_t> hidden_layers = {};        // of model::StepInput, wanted beside the logits
  model::Logits logits = model::Logits::kAll;     // kNone: hidden states alone
  std::optional<int64_t> decoder_start = {};      // encoder-decoder: the start token; absent: ModelInfo's
};

// Calls `use` with batches of at most `rows` of the texts, in their order.
void for_each_batch(const ForcedBatch& texts, size_t rows, const std::function<void(const ForcedBatch&)>& use);

// A pass over the outputs of a batch in steps of some positions, so that memory stays bounded at large vocabularies.
class TeacherForcing {
 public:
  TeacherForcing(model::LanguageModel& model, const ForcedBatch& batch);
  // Returns the logits [B,L,V] of the outputs' positions [first, first + L) for the next L positions; a row's are valid
  // up to its length. Call with consecutive positions until longest().
  at::Tensor next(int64_t positions) { return next_output(positions).logits; }
  // Returns these logits with the batch's hidden_layers [B,L,D]: of the tokens that the model reads at these positions.
  model::StepOutput next_output(int64_t positions);
  int64_t longest() const { return longest_; }
  int64_t rows() const { return static_cast<int64_t>(inputs_.size()); }
  // Returns the number of positions whose logits, of all rows, are not too many to be held at once.
  int64_t positions_at_once() const;
  // Returns the valid positions of each row among the next `positions`.
  std::vector<int64_t> valid(int64_t positions) const;
  // Return what came before: the encoder's states (encoder-decoder), or the prompts' hidden states
  // (infer/loop/prefill.h).
  const model::EncoderStates& encoder() const { return encoder_; }
  const std::vector<at::Tensor>& prompt_hidden() const { return prompt_hidden_; }

 private:
  model::LanguageModel& model_;
  std::vector<std::vector<int64_t>> inputs_;  // [B] tokens the decoder reads: start token or last prompt token, outputs
  std::vector<int64_t> hidden_layers_;
  model::Logits logits_;
  model::EncoderStates encoder_;
  std::vector<at::Tensor> prompt_hidden_;
  std::unique_ptr<model::DecodeState> state_;
  int64_t longest_ = 0;
  int64_t done_ = 0;
};

}  // namespace draftsmith::infer
