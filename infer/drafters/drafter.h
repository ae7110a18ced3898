// Drafters: loaded ones, which make the Drafter of a decoding loop, and one at work on a single row. A drafter proposes
// tokens, or gives the distribution of each row's next token, from the row's committed and drafted tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "infer/loop/rows.h"
#include "model/transformer/language_model.h"

namespace draftsmith::data {
class Tokenizer;  // data/tokenizers/tokenizer.h
}

namespace draftsmith::model {
class Exits;             // model/models/exits.h
class TransformerModel;  // model/transformer/transformer_model.h
}  // namespace draftsmith::model

namespace draftsmith::infer {

class Drafter;
struct CalibrationContext;  // infer/costs/step_costs.h
struct ForcedAlpha;         // infer/forced/teacher_forcing.h
struct ForcedBatch;         // infer/forced/teacher_forcing.h
struct LoadedModel;         // infer/load_models.h
struct StepCosts;           // infer/costs/step_costs.h
struct Warping;             // infer/sampling/row_kernels.h

enum class DrafterKind {
  kModel,     // a small language model; one without an encoder reads the target's
  kTandem,    // a Tandem secondary of the target
  kFeatures,  // layers that read the target's hidden states
  kNgram,     // a table of n-gram counts, made by a stage of kind `ngram`
  kExit,      // the first layers of the target itself
  kLookup,    // prompt look-up
};

// Properties of a kind of drafter, known before one is loaded.
struct DrafterTraits {
  std::string_view name;
  bool logits = true;         // gives next_logits(), whose probabilities say how sure it is; false: only next_tokens()
  bool on_host = false;       // reads DraftRequest::on_host
  bool reads_target = false;  // drafts from the target's hidden states
  bool in_target = false;     // is part of the target
  bool is_model = false;      // a model of its own, for which a router can be trained
};

// Returns the properties of a kind (infer/drafters/registry.cpp).
const DrafterTraits& traits_of(DrafterKind kind);

// The model that a drafter drafts for.
struct DraftTarget {
  model::LanguageModel& model;
  const data::Tokenizer* tokenizer = nullptr;  // nullptr: only the numbers of token ids are compared
  const model::Exits* exits = nullptr;         // nullptr: the model's own final norm and head
};

// A loaded model or table, a rule that needs no file, or layers of the target.
class LoadedDrafter {
 public:
  virtual ~LoadedDrafter() = default;

  // Returns the drafter's name in messages: a model's name, a table's file, "lookup:4", "exit:2".
  virtual std::string name() const = 0;
  // Reports a problem if the drafter cannot draft for the target: another vocabulary or another kind of model.
  virtual void check(const DraftTarget& target, Problems& problems) const = 0;
  // Makes a drafter for a target that check() reported no problem with. This object and the target must outlive it.
  virtual std::unique_ptr<Drafter> make(const DraftTarget& target) const = 0;

  // Returns the directory or file that the drafter was loaded from; empty: none.
  virtual std::filesystem::path path() const { return {}; }
  // Returns the model that drafts; nullptr: none.
  virtual model::LanguageModel* model() const { return nullptr; }
  // Returns model() as a transformer; nullptr: it is none.
  const model::TransformerModel* transformer() const;
  // Returns the model with its tokenizer and settings if it can decode alone; else nullptr.
  virtual const LoadedModel* standalone() const { return nullptr; }
  // Returns whether the drafter reads the target's hidden states.
  virtual bool reads_target() const { return false; }
  // Returns how many of the target's first layers draft; 0: the drafter is no part of the target.
  virtual int64_t inside_target() const { return 0; }

  // Returns the median seconds of steps of drafter and target, for 1..max_tokens tokens (infer/costs/step_costs.h). By
  // default those of model() or, without one, of a drafter that proposes tokens.
  virtual StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context, int64_t max_tokens) const;
  // Returns how well the drafter, likewise, predicts the target on given texts (infer/forced/teacher_forcing.h).
  // `block`: tokens that a drafter which reads the target's states predicts at a time; 0: as it was trained. Others
  // ignore it.
  virtual ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                                   int64_t block) const;

  // Warns that the target writes the ends of texts of up to `tokens` alone: the drafter has fewer positions. Only the
  // first call does, whoever decodes with this drafter.
  void warn_of_positions(const model::ModelInfo& target, int64_t tokens) const;

 private:
  mutable std::atomic<bool> warned_ = false;
};

using SharedDrafter = std::shared_ptr<const LoadedDrafter>;

// In next_tokens(): the drafter proposes nothing, which ends the row's draft.
constexpr int64_t kNoProposal = -1;

// The beginning of a batch. Everything here outlives the batch.
struct DraftBegin {
  const model::TokenBatch& sources;  // encoder-decoder: one row for each source; else empty
  int64_t samples;                   // rows for each source
  std::span<const Row> rows;
  int64_t capacity;                            // tokens a row can hold
  const model::EncoderStates* target_encoder;  // for drafters that read the target's encoder; null: decoder-only
  model::DecodeState* target_state;            // for drafters that are part of the target
  // In prefill() of decoder-only models: the target's hidden states of the prompts without their last tokens. One
  // [P,L,D] for each of target_layers() with a row for each prompt, right padded. Empty if prompts have one token.
  std::span<const at::Tensor> prompt_hidden = {};
};

// Asks for one more token of each active row.
struct DraftRequest {
  std::span<const Row> rows;
  // This window's tokens so far, one int64 [B] for each step: garbage in inactive rows, undefined if they were
  // proposed.
  std::span<const at::Tensor> drafted;
  std::span<const int64_t> active;  // [B] 1: the row goes on drafting, 0: not
  // [B] this window's tokens of each row. Filled for drafters whose traits ask for them.
  std::span<const std::vector<int64_t>> on_host;
  // [B] most tokens of each row's window; empty: the next one alone is known to be wanted.
  std::span<const int64_t> limits = {};

  int64_t limit(size_t row) const { return limits.empty() ? std::ssize(drafted) + 1 : limits[row]; }
};

// The drafter's work for one next_logits() with an active row.
struct StepTokens {
  int64_t processed = 1;  // tokens
  int64_t logits = 1;     // of these, tokens with logits; 0: an earlier run has computed them
};

// The result of the target's run. Its tokens began with each row's token base - 1 and reached at least the row's last
// token but one.
struct DraftObservation {
  std::span<const Row> rows;        // with the new committed tokens
  const model::StepOutput& target;  // hidden states of target_layers(); none for finished rows
  std::span<const int64_t> base;    // [B] committed length before the draft
};

// A round of one row: its draft steps and the step of the target after them.
struct CountedRound {
  int64_t before = 0;     // tokens in the target's state before the round
  int64_t drafted = 0;    // draft steps
  int64_t processed = 0;  // tokens that the target was given afterwards; 0: it did not run
  double share = 1;       // RowStep::share of the target's step
};

// A language model and its state, which has processed all but a row's last one or two committed tokens.
struct DraftingModel {
  model::LanguageModel& model;
  model::DecodeState& state;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual DrafterTraits traits() const = 0;

  // --- a batch ---
  // Runs the encoder on a new batch.
  virtual void encode(const DraftBegin& /*begin*/) {}
  // Processes the prompts of a new batch.
  virtual void prefill(const DraftBegin& /*begin*/) {}
  // Rolls back to the committed tokens.
  virtual void observe(const DraftObservation& /*observation*/) {}
  // Keeps only the given rows, in the given order.
  virtual void select_rows(std::span<const int64_t> /*rows*/) {}

  // --- drafting ---
  // Returns unprocessed logits [B,V] in the target's vocabulary; garbage for inactive rows.
  virtual at::Tensor next_logits(const DraftRequest& request) = 0;
  // Returns one token [B] for each active row (kNoProposal: none) and garbage for the others; q is one-hot there.
  // Absent if the drafter has only logits. Called if the window rule reads no logits and, for drafters with logits,
  // only in greedy decoding without logits processors.
  virtual std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& /*request*/) { return std::nullopt; }

  // Returns the model that drafts, if next_logits() is but its step, with the vocabulary fitted: then whole windows can
  // be drafted on a device without the host. After prefill() only.
  virtual std::optional<DraftingModel> drafting_model() { return std::nullopt; }

  // Returns what next_logits() will compute for an active row: one token, more if the drafter has not processed all
  // committed tokens, or positions of later tokens as well. Called before it.
  virtual StepTokens step_tokens(const DraftRequest& /*request*/, size_t /*row*/) const { return {}; }

  // Returns how many tokens can be drafted after a row's committed ones before the drafter's positions end. It falls by
  // one with each committed token. At 0 the target writes alone, and the drafter is not asked about the row any more.
  virtual int64_t room(const Row& /*row*/) const { return std::numeric_limits<int64_t>::max(); }

  // --- for drafters that use the target's computation ---
  // Returns the layers whose hidden states observe() reads (StepInput::hidden_layers).
  virtual std::vector<int64_t> target_layers() const { return {}; }
  // Runs the target over a round's pending tokens. Called once after each draft, with every row that is not finished. A
  // drafter that is part of the target overrides it to continue from its own layers.
  virtual model::StepOutput run_target(model::LanguageModel& target, const model::StepInput& input,
                                       model::DecodeState& state) {
    return target.step(input, state);
  }
  // Adds the layers run in a round of one row to stats.layer_runs and latency_units, and to draft_steps those that its
  // draft steps did not run. Only drafters inside the target count them.
  virtual void count_layers(const CountedRound& /*round*/, DecodeStats& /*stats*/) const {}
};

// Returns Drafter::room() of a model that reads the row's tokens and, if `reads_source`, its source.
int64_t positions_left(const model::ModelInfo& drafter, const Row& row, bool reads_source);

// Returns the capacity of a drafter's states: no more than its positions.
int64_t capacity_within(const model::ModelInfo& drafter, int64_t capacity);

// Drafter at work on one row, outside the decoding loop: what evaluations measure of drafters that are no models.
class DrafterProbe {
 public:
  // Begins the row. `source` is empty for decoder-only targets; `tokens` are the start token or the prompt, then what
  // is committed already. The drafter must be one that proposes tokens, reads no encoder, and outlive the probe.
  DrafterProbe(Drafter& drafter, const model::ModelInfo& target, const std::vector<int64_t>& source,
               const std::vector<int64_t>& tokens);
  // Returns the drafter's next token; kNoProposal: none.
  int64_t next_token();
  bool gives_logits() const { return drafter_.traits().logits; }
  // Returns the logits [1,V] of the next token.
  at::Tensor next_logits();
  // Appends a drafted token.
  void draft(int64_t token) { drafted_.front().push_back(token); }
  // Removes all drafted tokens.
  void forget_draft() { drafted_.front().clear(); }
  // Commits a token. Nothing may be drafted.
  void commit(int64_t token);

 private:
  DraftRequest request() const;

  Drafter& drafter_;
  std::vector<Row> rows_;
  std::vector<int64_t> active_;
  std::vector<std::vector<int64_t>> drafted_;
};

}  // namespace draftsmith::infer
