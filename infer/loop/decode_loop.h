// The loop of methods that draft and verify: draft -> verify -> commit. Each row of the batch advances at its own pace.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/loop/drafting.h"
#include "infer/loop/row_verdict.h"

namespace draftsmith::infer {

class DecodeLoop {
 public:
  // All arguments must outlive the loop.
  DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings);
  // Decodes every row to its end. The drafter must have processed the batch's prompts. `timer` must be in kOther, as
  // it is afterwards; the rows share its time.
  void run(RowBatch& batch, PhaseTimer& timer);

 private:
  struct Verdict {
    model::StepOutput target;      // logits [B,G+1,V] and hidden states
    Judgement judgement;           // on the host
    std::vector<RowVerdict> rows;  // [B]
  };

  // Commits drafts that end their rows' texts, if the acceptance rule lets them pass unverified.
  // Removes them from the draft.
  void commit_ends(RowBatch& batch, Draft& draft, PhaseTimer& timer);
  bool ends_text(const Row& row, std::span<const int64_t> drafted) const;
  void commit_end(RowBatch& batch, size_t b, std::span<const int64_t> drafted) const;
  // Verifies and commits the drafts of rows that are not finished. `base`: each row's length before its draft.
  void run_target(RowBatch& batch, Draft& draft, std::span<const int64_t> base, PhaseTimer& timer);
  // Runs the target over the pending tokens and judges the draft.
  Verdict verify(RowBatch& batch, Draft& draft);

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Drafting drafting_;
  bool commits_ends_;   // unverified
  bool begins_rounds_;  // with random numbers of their own
};

}  // namespace draftsmith::infer
