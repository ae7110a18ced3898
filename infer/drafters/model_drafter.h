// The drafter `model`: a small language model with a decode state of its own. May be the target itself.
#pragma once

#include <memory>

#include "infer/drafters/drafter.h"

namespace draftsmith::infer {

class ModelDrafter : public Drafter {
 public:
  // `vocabulary` is the target's; a drafter with fewer ids gives the others no probability, one with more (padding)
  // loses them. Committed ids that the drafter lacks are fed to it as padding. The model must outlive the drafter.
  ModelDrafter(model::LanguageModel& model, int64_t vocabulary) : model_(model), vocabulary_(vocabulary) {}

  DrafterTraits traits() const override { return {.name = "model"}; }
  void encode(const DraftBegin& begin) override;
  void prefill(const DraftBegin& begin) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  at::Tensor known(const at::Tensor& tokens) const;
  model::StepInput owed_tokens(const DraftRequest& request) const;

  model::LanguageModel& model_;
  int64_t vocabulary_;
  model::EncoderStates encoder_;
  std::unique_ptr<model::DecodeState> state_;
};

}  // namespace draftsmith::infer
