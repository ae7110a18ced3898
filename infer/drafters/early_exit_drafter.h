// The drafter `early-exit`: the target's own first n layers, read by an exit (Kim et al. 2023, section 4.4). It drafts
// over the target's state, where the first n layers are ahead of the others. Verification continues from their hidden
// states, so no layer runs twice for a token, and later layers have exact keys and values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "infer/drafters/drafter.h"
#include "model/kinds/exits.h"

namespace draftsmith::infer {

class EarlyExitDrafter : public Drafter {
 public:
  // `target` must be the decoding loop's, `layers` within 1..N. Without `exits` (nullptr) the model's final norm and
  // head read layer n. Target and exits must outlive the drafter.
  EarlyExitDrafter(model::TransformerModel& target, int64_t layers, const model::Exits* exits);

  DrafterTraits traits() const override { return {.name = "early-exit"}; }
  void prefill(const DraftBegin& begin) override;
  // Runs layers 0..n-1 of each active row's next token and keeps their output.
  at::Tensor next_logits(const DraftRequest& request) override;
  // Runs layers 0..n-1 of the pending tokens that no draft step ran (usually each row's last), then the other layers of
  // all pending tokens. Hidden states of layers n..N can be wanted.
  model::StepOutput run_target(model::LanguageModel& target, const model::StepInput& input,
                               model::DecodeState& state) override;
  // Counts each layer once for each token. The first n layers took the tokens one by one, the others together.
  void count_layers(const CountedRound& round, DecodeStats& stats) const override;
  // Forgets the draft. The loop has rolled back the state, which is the target's.
  void observe(const DraftObservation& observation) override;

 private:
  at::Tensor run_first(const at::Tensor& tokens, std::span<const int64_t> new_tokens, model::Logits wanted);
  at::Tensor pending_hidden(const model::StepInput& input);
  void forget_draft();

  model::TransformerModel& target_;
  int64_t layers_;
  const model::Exits* exits_;
  bool own_head_;  // the model's own norm and head read layer n
  model::DecoderState* state_ = nullptr;
  // --- this window ---
  std::vector<at::Tensor> hidden_;  // outputs of layer n, one [B,1,D] for each step; garbage for rows that did not run
  std::vector<int64_t> ran_;        // [B] draft steps that each row ran; empty: none
};

}  // namespace draftsmith::infer
