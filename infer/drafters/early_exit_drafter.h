// The drafter `early-exit`: the target's own first n layers, read by an exit (Kim et al. 2023, section 4.4). It drafts
// over the target's state, where these layers stand ahead of the others; verification goes on from their hidden states,
// so no layer runs twice for a token, and the later layers' keys and values are real.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "infer/drafters/drafter.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

class EarlyExitDrafter : public Drafter {
 public:
  // `target` must be the decoding loop's, `layers` 1..N of it; `exits` may be nullptr: layer n is read by the model's
  // final norm and head. Both must outlive the drafter.
  EarlyExitDrafter(model::TransformerModel& target, int64_t layers, const model::Exits* exits);

  DrafterTraits traits() const override { return {.name = "early-exit", .inside_target = layers_}; }
  void encode(const DraftBegin& /*begin*/) override {}
  void prefill(const DraftBegin& begin) override;
  // Layers 0..n-1 of each active row's next token; their output is kept.
  at::Tensor next_logits(const DraftRequest& request) override;
  // Layers 0..n-1 of the pending tokens that no draft step ran (each row's last, as a rule), then the others of all.
  // Hidden states of layers n..N are served.
  model::StepOutput run_target(const model::StepInput& input, model::DecodeState& state) override;
  // The loop has rolled back the state that is the target's and this drafter's.
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  at::Tensor run_first(const at::Tensor& tokens, std::span<const int64_t> new_tokens);
  at::Tensor pending_hidden(const model::StepInput& input);
  at::Tensor run_rest(at::Tensor hidden, const model::StepInput& input, model::StepOutput& output);
  void forget_draft();

  model::TransformerModel& target_;
  int64_t layers_;
  const model::Exits* exits_;
  model::DecoderState* state_ = nullptr;
  // --- of this window ---
  std::vector<at::Tensor> hidden_;  // of layer n, one [B,1,D] a draft step; garbage for rows that did not run
  std::vector<int64_t> ran_;        // [B] draft steps that each row ran; empty: none
};

}  // namespace draftsmith::infer
