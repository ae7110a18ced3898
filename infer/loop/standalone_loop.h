// The loop of drafters that stand alone: draft -> keep -> read. No draft is verified; the target only reads the
// finished blocks, and may add a token to each (methods.md §1, "Standalone").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/loop/decode_settings.h"
#include "infer/loop/drafting.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

// Decoding with the target alone, one token a step: the baselines `greedy` and `sample`.

// Decodes every row to its end.
void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// Returns each row's next token, chosen greedily or by sampling from logits [B,V], which are processed in place.
// Finished rows get garbage. int64 [B] on the logits' device
at::Tensor choose_on_device(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);
// Returns the same on the host.
std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);

// Commits one token to each row that is not finished, counts the target's run and notifies. kNoToken fails its row.
// A target that predicts `at_once` tokens in a run has one for a row's first token and one for each block.
void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings, int64_t at_once = 1);

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

}  // namespace draftsmith::infer
