// The loops of decoding: with the target alone, draft -> verify -> commit, and draft -> keep -> read. Each row of the
// batch advances at its own pace. Their drafting half: one window of tokens for each row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/drafters/drafter.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

// The three parts of a method that drafts.
struct DraftParts {
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<WindowRule> window;
  std::unique_ptr<AcceptanceRule> acceptance;
};

// The drafted tokens of all rows.
struct Draft {
  std::vector<at::Tensor> tokens;         // one int64 [B] for each step, valid ids; undefined for proposed tokens
  std::vector<at::Tensor> unread;         // `tokens` with kNoToken for bad logits; empty if `read` while drafting
  std::vector<at::Tensor> probabilities;  // one [B,V] for each step if the acceptance rule reads them (Verification)
  std::vector<int64_t> counts;            // [B] tokens of each row
  std::vector<int64_t> steps;             // [B] steps of the drafter with each row
  std::vector<std::vector<int64_t>>
      on_host;       // [B] each row's tokens up to its first EOS or kNoToken; until `read` none
  bool read = true;  // false: drafting ran without synchronisation

  int64_t width() const { return std::ssize(tokens); }
  // Fails the rows whose tokens were read and end with kNoToken, and drops their drafts.
  void fail_rows(std::span<Row> rows);
  // Fills on_host from tokens [B,G] on the host.
  void set_tokens(const at::Tensor& host_tokens, std::span<const int64_t> eos);
  // Copies the tokens from the device to on_host unless they are there.
  void read_tokens(std::span<const int64_t> eos);
};

// The drafting half of a decoding loop. Keeps the drafter and the window rule in step with the batch.
class Drafting {
 public:
  // All arguments must outlive this.
  Drafting(const model::ModelInfo& target, const DraftParts& parts, const DecodeSettings& settings);

  // Starts a batch whose prompts the drafter has processed.
  void begin(RowBatch& batch) const;
  // Drafts a window for each row that is neither finished nor handed over to the target.
  Draft draft(RowBatch& batch) const;
  // Ends the window of a draft that was kept without a verdict. `base`: the row's length before it.
  void end_unjudged(const RowBatch& batch, size_t b, int64_t drafted, int64_t base) const;
  // Removes finished rows from the batch and from the parts.
  void remove_finished(RowBatch& batch) const;

 private:
  // A draft in progress.
  struct Window : Draft {
    std::vector<int64_t> limits;  // [B] most tokens of each row
    std::vector<int64_t> active;  // [B] 1: the row goes on drafting, 0: its draft has ended

    void end_rows_at_limits();
  };

  Window begin_window(const RowBatch& batch) const;
  void count_step(RowBatch& batch, const DraftRequest& request, Window& window) const;
  bool add_proposals(std::span<const int64_t> proposed, Window& window) const;
  bool add_step(RowBatch& batch, const at::Tensor& logits, Window& window) const;
  void append_on_host(std::span<const int64_t> tokens, Window& window) const;
  at::Tensor choose(const RowBatch& batch, const at::Tensor& logits, Window& window) const;
  static void end_failed_rows(RowBatch& batch, Window& window);

  const model::ModelInfo& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Decides decides_;
  bool asks_for_tokens_;  // instead of logits
  // On the host, while drafting. A fixed window on a GPU is drafted without; tokens behind an EOS are dropped
  // afterwards.
  bool reads_tokens_;
  bool reads_probabilities_;  // after drafting, for the acceptance rule or alpha
};

// Every loop decodes its rows to their ends. `timer` must be in kOther, as it is afterwards; the rows share its time.

// ---- The target alone, one token a step: the baselines `greedy` and `sample`

void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// Returns each row's next token, chosen greedily or by sampling from logits [B,V], which are processed in place.
// Finished rows get garbage.
std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);

// Commits one token to each row that is not finished, counts the target's run and notifies. kNoToken fails its row.
// A target that predicts `at_once` tokens in a run has one for a row's first token and one for each block.
void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings, int64_t at_once = 1);

// ---- With a drafter

// Drafts and verifies; or, by the acceptance rule's TargetRole, keeps every draft and lets the target read it
// (decode_unjudged()). The drafter must have processed the batch's prompts.
void decode_with_drafts(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings,
                        RowBatch& batch, PhaseTimer& timer);

// Keeps every draft, which the target reads and, if the rule says so, goes on with a token of its own.
void decode_unjudged(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings,
                     RowBatch& batch, PhaseTimer& timer);

// Returns a device's judgement on the host, and fills draft.on_host, if drafting did not, from `tokens`, the drafted
// tokens [B,G] on the device, with kNoToken for bad logits: one transfer for all.
Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft);

// Commits the accepted tokens of each row's draft, of which the host has the tokens, and the target's next token.
// Counts the round, and tells the window rule and the batch's listener. Tokens behind a draft's first EOS count for
// nothing, nor does the overlap at a position whose logits are no numbers. Finished rows stay as they are.
void commit_judgement(RowBatch& batch, const Draft& draft, const Judgement& judgement, const DraftParts& parts,
                      std::span<const int64_t> eos);

}  // namespace draftsmith::infer
