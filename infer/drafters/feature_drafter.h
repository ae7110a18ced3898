// The drafter `features` (model/models/feature_drafter.h): one or two layers that read the target's hidden states. After
// a verification it reads the target's states of the tokens that stay, in the run that drafts the next token; then its
// own.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

class FeatureDrafter : public Drafter {
 public:
  // `model` must be a features drafter of the decoding loop's target, have borrowed from it, and outlive the drafter.
  explicit FeatureDrafter(model::TransformerModel& model);

  DrafterTraits traits() const override { return traits_of(DrafterKind::kFeatures); }
  void encode(const DraftBegin& begin) override;
  void prefill(const DraftBegin& begin) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  int64_t step_tokens(const DraftRequest& request, size_t row) const override;
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;
  int64_t room(const Row& row) const override { return positions_left(model_.info(), row, false); }
  std::vector<int64_t> target_layers() const override { return model_.config().features.layers; }

 private:
  // Tokens of rows with the states of the tokens before them, as steps read them.
  struct Inputs {
    at::Tensor tokens = {};            // int64 [B,L]
    at::Tensor states = {};            // [B,L,D]
    std::vector<int64_t> counts = {};  // [B]
  };

  // Returns inputs of tokens [from[b], from[b] + counts[b]) of each row; `hidden`: of the tokens before them.
  Inputs inputs_of(std::span<const Row> rows, const std::vector<int64_t>& from, std::vector<int64_t> counts,
                   std::span<const at::Tensor> hidden) const;
  // Processes tokens that no draft has processed.
  void process_unread();
  model::StepOutput run(const Inputs& inputs, model::Logits logits);

  model::TransformerModel& model_;
  int64_t first_;  // position of a state's first token
  std::array<int64_t, 1> last_layer_;
  model::EncoderStates encoder_;
  std::unique_ptr<model::DecoderState> state_;
  Inputs unread_;      // committed tokens that the state lacks
  at::Tensor output_;  // [B,1,D] of the last step
};

// Makes a drafter of a features drafter; arguments as in ReadingDrafter.
SharedDrafter features_drafter(std::shared_ptr<model::TransformerModel> model,
                               const data::Tokenizer* tokenizer = nullptr, std::filesystem::path directory = {});

}  // namespace draftsmith::infer
