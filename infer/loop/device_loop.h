// Decoding whose rounds run on the device: drafted, verified and committed as replays of recorded work
// (base/device_graph.h), over lengths, texts and random numbers that lie there. The host launches a round before it
// reads the verdict of the one before, so the device never waits for the host. What was recorded serves later batches
// over the same memory. Output and counts are those of decode_plainly() and of decode_with_drafts().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <c10/core/Event.h>

#include "base/device_graph.h"
#include "infer/loop/decode_loop.h"
#include "infer/loop/device_rows.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

class DeviceLoop {
 public:
  // `parts`: null decodes plainly. All arguments must outlive the loop.
  DeviceLoop(model::LanguageModel& target, const DraftParts* parts, const DecodeSettings& settings);

  // Returns whether this loop can decode the batch, whose prompts have been processed: models step on the device, which
  // must be one that records graphs, no logits processor is active, and a drafting method has a model with positions
  // for all tokens, a fixed window and a lossless rule. Prepares the states for it.
  bool takes(const RowBatch& batch);
  // Decodes every row to its end. `timer` must be in kOther, as it is afterwards; the rows share its time.
  void run(RowBatch& batch, PhaseTimer& timer);

 private:
  // Verdict of a round on its way to the host.
  struct Flight {
    at::Tensor host;  // copy of the columns, complete after `landed`
    c10::Event landed;
  };

  // Rounds of batches with a number of rows: the tensors that they use, and what was recorded.
  struct Rounds {
    DeviceRows rows;
    at::Tensor target_rows;   // DeviceStepInput::rows of the target's steps
    at::Tensor drafter_rows;  // of the drafter's
    RoundPlan plan;
    std::vector<at::Tensor> drawn;          // one [B] for each drafting step; kNoToken: bad logits
    std::vector<at::Tensor> probabilities;  // one [B,V] for each, if kept
    PackedJudgement verdict;                // plain decoding: one column, the next tokens
    RepeatedWork drafting;
    RepeatedWork verifying;
  };

  bool drafts() const { return parts_ != nullptr; }
  // Gives the rounds of the batch's number of rows what they need. Returns false if a model has no steps on the device.
  bool begin_steps(const RowBatch& batch);
  void begin(const RowBatch& batch, std::span<const int64_t> drafted);
  void launch(RowBatch& batch, PhaseTimer& timer);
  // A round's work on the device.
  void draft(Rounds& rounds);
  void verify(Rounds& rounds, model::DecodeState& state);
  void choose(Rounds& rounds, const at::Tensor& logits);
  void judge(Rounds& rounds, const at::Tensor& logits, const at::Tensor& pending);
  at::Tensor draw_draft(Rounds& rounds, const at::Tensor& logits, int64_t step);
  // Reads the verdict of the oldest round in flight and commits it.
  void land(RowBatch& batch);
  void commit_drafts(RowBatch& batch, const at::Tensor& host);
  // Halves the batch when that many rows are finished.
  void remove_finished(RowBatch& batch);
  Rounds& rounds_of(const RowBatch& batch) { return rounds_[std::ssize(batch.rows)]; }

  model::LanguageModel& target_;
  const DraftParts* parts_;
  const DecodeSettings& settings_;
  at::Device device_;
  int64_t window_ = 0;
  bool keeps_probabilities_ = false;        // the drafter's, for the acceptance rule or alpha
  std::optional<DraftingModel> drafter_;    // of the present batch
  std::pair<uint64_t, uint64_t> memory_{};  // of the target's and the drafter's state, that the rounds use
  WorkMemory work_memory_;                  // of all rounds: never two at once
  std::map<int64_t, Rounds> rounds_;        // by the number of rows
  std::deque<Flight> flights_;
};

}  // namespace draftsmith::infer
