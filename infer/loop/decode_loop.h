// The loops of decoding: with the target alone, draft -> verify -> commit, and draft -> keep -> read. Each row of the
// batch advances at its own pace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/loop/drafting.h"
#include "infer/loop/row_verdict.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

// ---- The target alone, one token a step: the baselines `greedy` and `sample`

// Decodes every row to its end.
void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// Returns each row's next token, chosen greedily or by sampling from logits [B,V], which are processed in place.
// Finished rows get garbage.
std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);

// Commits one token to each row that is not finished, counts the target's run and notifies. kNoToken fails its row.
// A target that predicts `at_once` tokens in a run has one for a row's first token and one for each block.
void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings, int64_t at_once = 1);

// ---- Draft, keep, read: a drafter that stands alone

class StandaloneLoop {
 public:
  // All arguments must outlive the loop.
  StandaloneLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings);
  // Decodes every row to its end, as DecodeLoop::run() does.
  void run(RowBatch& batch, PhaseTimer& timer);

 private:
  // Commits the drafts. Returns each row's length before.
  std::vector<int64_t> keep_drafts(RowBatch& batch, const Draft& draft) const;
  void keep_draft(Row& row, std::span<const int64_t> drafted) const;
  void end_window(const RowBatch& batch, size_t b, int64_t drafted, int64_t base) const;
  // Runs the target once over the tokens of each unfinished row that it has not processed. `base`: each row's length
  // before its draft. Returns nothing if all rows are finished.
  model::StepOutput read_blocks(RowBatch& batch, std::span<const int64_t> base, const Draft& draft);
  void count(const CountedRound& round, Row& row) const;
  // Returns the target's token after each block, [B], from its logits [B,1,V].
  std::vector<int64_t> free_tokens(const RowBatch& batch, const at::Tensor& logits) const;
  void commit_free_tokens(RowBatch& batch, std::span<const int64_t> tokens) const;

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Drafting drafting_;
  bool adds_token_;  // the target adds a token to each block
};

// ---- Draft, verify, commit

class DecodeLoop {
 public:
  // All arguments must outlive the loop.
  DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings);
  // Decodes every row to its end. The drafter must have processed the batch's prompts. `timer` must be in kOther, as
  // it is afterwards; the rows share its time.
  void run(RowBatch& batch, PhaseTimer& timer);

 private:
  // Commits drafts that end their rows' texts, if the acceptance rule lets them pass unverified.
  // Removes them from the draft.
  void commit_ends(RowBatch& batch, Draft& draft, PhaseTimer& timer);
  bool ends_text(const Row& row, std::span<const int64_t> drafted) const;
  void commit_end(RowBatch& batch, size_t b, std::span<const int64_t> drafted) const;
  // Runs the target over the pending tokens of rows that are not finished, judges their drafts and commits what stays.
  // `base`: each row's length before its draft.
  void run_target(RowBatch& batch, Draft& draft, std::span<const int64_t> base, PhaseTimer& timer);

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Drafting drafting_;
  bool commits_ends_;   // unverified
  bool begins_rounds_;  // with random numbers of their own
};

}  // namespace draftsmith::infer
