// Teacher-forced texts: a model reads each output shifted by one and says at every position what it would expect.
// Logits of given outputs, quality of prediction, and how well a drafter predicts a target
// (methods.md §3).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
#include "infer/sampling/sampling.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// ---- Quality of prediction
// How well a model predicts the tokens of given texts: accuracy and cross entropy (methods.md §3; Nair et al. 2024,
// Table 1).

struct PredictionQuality {
  double accuracy = 0;       // share of tokens that the model finds most likely
  double cross_entropy = 0;  // nats a token at temperature 1; infinite where one was impossible, NaN without logits
};

// The tokens that stand at some positions of each row.
struct ForcedLabels {
  at::Tensor ids;      // int64 [B,L]
  at::Tensor counted;  // bool [B,L]: false beyond a row's end
};

// On the host: outputs[b][first[b] .. first[b] + valid[b]) in row b of `width` places.
ForcedLabels labels_of(std::span<const std::vector<int64_t>> outputs, std::span<const int64_t> first,
                       std::span<const int64_t> valid, int64_t width);

class QualitySums {
 public:
  // Adds the counted positions of logits [B,L,V], whose most likely ids are `choice` [B,L]; labels on their device. A
  // label that the model has no id for is impossible to it.
  void add(const at::Tensor& logits, const at::Tensor& choice, const ForcedLabels& labels);
  // Adds a position of a drafter without logits.
  void add(bool correct);
  // NaN without positions.
  PredictionQuality mean() const;

 private:
  int64_t correct_ = 0;
  double nats_ = 0;
  int64_t positions_ = 0;
};

// ---- Logits of given outputs

// Texts that a model reads as given.
struct ForcedBatch {
  std::span<const std::vector<int64_t>> sources;  // decoder-only: prompts, not empty
  std::span<const std::vector<int64_t>> outputs;  // one for each source
  std::vector<int64_t> hidden_layers = {};        // of model::StepInput, wanted beside the logits
  model::Logits logits = model::Logits::kAll;     // kNone: hidden states alone
};

// Texts that a model has positions for.
struct ReadableTexts {
  std::vector<std::vector<int64_t>> sources;
  std::vector<std::vector<int64_t>> outputs;
};

// Returns the texts as far as a drafter can predict them: outputs end where its positions do, and texts whose first
// token has no position are left out. `reads_sources`: the drafter has an encoder of its own.
ReadableTexts readable_texts(const model::ModelInfo& drafter, const ForcedBatch& texts, bool reads_sources);

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
  // (infer/loop/rows.h).
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

// ---- How well a drafter predicts a target, and how well each predicts the texts' own tokens (methods.md §3)

constexpr size_t kForcedRows = 16;  // texts in a teacher-forced batch

struct ForcedAlpha {
  double alpha = 0;      // mean of sum_x min(p, q) of the warped distributions; at temperature 0 equal to agreement
  double agreement = 0;  // share of positions where both find the same token most likely
  int64_t positions = 0;
  PredictionQuality target = {};   // of the texts' own tokens
  PredictionQuality drafter = {};  // of the texts' own tokens
};

// Logits of both models, [B,L,V]; V may differ.
struct LogitsPair {
  at::Tensor target;
  at::Tensor drafter;
};

class AlphaSums {
 public:
  explicit AlphaSums(const Warping& warping) : warping_(warping) {}

  // Adds the positions that `labels` counts.
  void add(const LogitsPair& logits, const ForcedLabels& labels);
  // Adds all positions of a batch; `step` returns the logits of its next `width` positions.
  void add_batch(const TeacherForcing& target, const ForcedBatch& batch,
                 const std::function<LogitsPair(int64_t width)>& step);
  // Adds one position whose token is `label`: the target's logits [1,1,V] against the drafter's next token.
  void add(const at::Tensor& logits, int64_t label, DrafterProbe& drafter);
  // Returns the means; all members are 0 without positions.
  ForcedAlpha mean() const;

 private:
  Warping warping_;
  QualitySums target_;
  QualitySums drafter_;
  double overlap_ = 0;
  int64_t same_ = 0;
  int64_t positions_ = 0;
};

struct ForcedPair {
  model::LanguageModel& target;
  model::LanguageModel& drafter;
};

// Measures all positions of outputs[i] given sources[i] (decoder-only: prompts, which are not counted; they may not be
// empty) that the drafter has. Ids mean the same to both models; the drafter may have fewer of them. No positions: all
// members are 0.
ForcedAlpha measure_forced_alpha(const ForcedPair& models, const ForcedBatch& texts, const Warping& warping);

// Measures a drafter that is no model, row by row. Where it proposes nothing the overlap is 0.
ForcedAlpha measure_forced_alpha(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& texts,
                                 const Warping& warping);

}  // namespace draftsmith::infer
