// The loop of drafters that stand alone: draft -> keep -> read. No draft is verified; the target only reads the
// finished blocks, and may add a token to each (methods.md §1, "Standalone").
#pragma once

#include <cstdint>
#include <vector>

#include "infer/loop/drafting.h"

namespace draftsmith::infer {

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
