// A drafter proposes tokens: for each row the distribution of the next one, given what is committed and drafted.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "infer/loop/rows.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// What a drafter gives.
struct DrafterTraits {
  std::string name;
  bool distribution = true;   // its logits are a distribution it would sample from (a table may be one-hot)
  bool confidence = true;     // its probabilities say how sure it is (a copied token's do not)
  bool logits = true;         // next_logits() exists; false: it only proposes tokens, by next_tokens()
  bool on_host = false;       // reads DraftRequest::on_host; true for those with next_tokens()
  bool reads_target = false;  // drafts from what the target computed (hidden states), so the target's runs serve it
  // Layers of the target that a step of its draft runs, over the target's own caches: run_target() verifies. 0: the
  // drafter is no part of the target.
  int64_t inside_target = 0;
};

// In next_tokens(): the drafter has nothing to propose, the row's draft ends here.
constexpr int64_t kNoProposal = -1;

// The beginning of a batch. Everything outlives the batch.
struct DraftBegin {
  const model::TokenBatch& sources;  // encoder-decoder: one row a source; else empty
  int64_t samples;                   // rows for each source
  std::span<const Row> rows;
  int64_t capacity;                            // tokens a row can hold
  const model::EncoderStates* target_encoder;  // for drafters that read the target's encoder; null: decoder-only
  model::DecodeState* target_state;            // for drafters that are part of the target
  // prefill() of decoder-only models: the target's hidden states of the prompts, all but their last tokens, one [P,L,D]
  // for each of target_layers(); a row for each prompt, right padded. Empty where prompts have one token.
  std::span<const at::Tensor> prompt_hidden = {};
};

// One more token for each active row.
struct DraftRequest {
  std::span<const Row> rows;
  std::span<const at::Tensor> drafted;  // this window's tokens so far, one int64 [B] a step; garbage for inactive rows
  std::span<const int64_t> active;      // [B] 1: the row goes on drafting, 0: not
  // [B] this window's tokens of each row, for drafters whose traits ask for them; else they may be empty. Where tokens
  // were proposed, `drafted` holds undefined tensors.
  std::span<const std::vector<int64_t>> on_host;
};

// After the target's run: rows hold the new committed tokens, `target` the run's outputs (hidden states of
// target_layers(), for drafters that read them; none for finished rows), `base` each row's committed length before
// the draft. The run's tokens begin with each row's token base - 1, and end, or go on, with its last but one.
struct DraftObservation {
  std::span<const Row> rows;
  const model::StepOutput& target;
  std::span<const int64_t> base;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual DrafterTraits traits() const = 0;
  // Encoder and prompt of a new batch.
  virtual void encode(const DraftBegin& begin) = 0;
  virtual void prefill(const DraftBegin& begin) = 0;
  // One token [B] for each active row (kNoProposal: none), garbage for the others; what q is one-hot at. Nothing when
  // the drafter has only logits. Asked for where the window rule reads no logits and, of drafters that have logits,
  // where they are not needed: in greedy decoding without logits processors.
  virtual std::optional<std::vector<int64_t>> next_tokens(const DraftRequest&) { return std::nullopt; }
  // Unprocessed logits [B,V] in the target's vocabulary; garbage for inactive rows.
  virtual at::Tensor next_logits(const DraftRequest& request) = 0;
  // Of drafters inside the target: its run over a step's pending tokens in place of target.step(), taking up what
  // drafting has computed of them. Called once after each draft, with every row that is not finished.
  virtual model::StepOutput run_target(const model::StepInput& /*input*/, model::DecodeState& /*state*/) {
    throw std::logic_error("this drafter is no part of the target");
  }
  // Goes back to what is committed.
  virtual void observe(const DraftObservation& observation) = 0;
  // Keeps only the given rows, in the given order.
  virtual void select_rows(std::span<const int64_t> rows) = 0;
  // Hidden states of the target that observe() wants.
  virtual std::vector<int64_t> target_layers() const { return {}; }
};

}  // namespace draftsmith::infer
