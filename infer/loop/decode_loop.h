// The one loop of all methods that draft: draft -> verify -> commit, or draft -> keep for drafters that stand alone,
// over a batch whose rows go at their own pace.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "infer/loop/timing.h"
#include "infer/parts.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// What decoding does at every position, whatever the method.
struct DecodeSettings {
  Warping warping;
  LogitsProcessors processors;
  std::vector<int64_t> eos;
  bool measure_alpha = false;
  int64_t ids = std::numeric_limits<int64_t>::max();  // ids from here on are padding of the logits, never put out
};

// A batch ready to be decoded. Rows leave it as they finish.
struct RowBatch {
  std::vector<Row> rows;
  std::unique_ptr<model::DecodeState> state;  // the target's; everything but each row's last committed token processed
  std::vector<Row> finished;
  OnTokens on_tokens;  // may be empty

  // Tells on_tokens of what the row has from index `before` on.
  void notify(const Row& row, int64_t before) const;
  // Moves finished rows to `finished`, once they are so many that shrinking the batch pays: states copy their caches
  // for it. Returns the rows kept, empty when nothing changed.
  std::vector<int64_t> remove_finished();
  // Shares out a batch's time among the rows that are not finished.
  void add_time(const PhaseSeconds& seconds);
};

// `token`, or RunError naming the input's line and the new token's index `position` if it is kNoToken. `whose`: target
// or drafter.
int64_t checked_token(const Row& row, int64_t position, int64_t token, const std::string& whose);

// Rows' time is shared from `timer`, which is in kOther when this begins and ends.
class DecodeLoop {
 public:
  DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings);
  // Decodes every row to its end. The drafter has begun the batch.
  void run(RowBatch& batch, PhaseTimer& timer);

 private:
  // A window of all rows.
  struct Draft {
    std::vector<at::Tensor> tokens;             // one int64 [B] a step; undefined where they were proposed
    std::vector<at::Tensor> probabilities;      // one [B,V] a step, when the acceptance rule reads them
    std::vector<int64_t> limits;                // [B] most tokens of each row
    std::vector<int64_t> counts;                // [B]
    std::vector<std::vector<int64_t>> on_host;  // [B] tokens, unless drafting ran without synchronisation
  };
  struct Verdict {
    std::vector<int64_t> values;  // [B,G+3]: drafted tokens, accepted, next, rolled back
    at::Tensor overlap;           // fp64 [B,G], host; may be undefined
    model::StepOutput target;
  };

  Draft draft(RowBatch& batch);
  std::vector<int64_t> window_limits(const RowBatch& batch) const;
  bool take_proposals(std::span<const int64_t> proposed, Draft& window, std::vector<int64_t>& active) const;
  bool take_token(RowBatch& batch, const at::Tensor& logits, Draft& window, std::vector<int64_t>& active);
  void add(std::span<const int64_t> tokens, Draft& window, std::vector<int64_t>& active) const;
  void ask_window(const DraftStep& step, Draft& window, std::vector<int64_t>& active) const;
  at::Tensor choose(const RowBatch& batch, const at::Tensor& logits, Draft& window) const;
  at::Tensor pending_tokens(const RowBatch& batch, const Draft& window) const;
  static std::vector<int64_t> fetch(const at::Tensor& tokens, const Judgement& judgement);
  // The target's run over a step's pending tokens.
  model::StepOutput run_target(RowBatch& batch, const model::StepInput& input);
  Verdict verify(RowBatch& batch, const Draft& window);
  void verify_and_commit(RowBatch& batch, const Draft& window, PhaseTimer& timer);
  // Each row's length before it.
  std::vector<int64_t> commit(RowBatch& batch, const Draft& window, const Verdict& verdict);
  void commit_row(Row& row, size_t index, int64_t drafted, const Verdict& verdict);
  bool reads_probabilities() const;

  // --- without verification (standalone_loop.cpp) ---
  void keep(RowBatch& batch, Draft& window, PhaseTimer& timer);
  void keep_draft(Row& row, std::span<const int64_t> drafted);
  void read_on_host(Draft& window) const;
  model::StepOutput read_block(RowBatch& batch, std::span<const int64_t> base);
  std::vector<int64_t> free_tokens(const RowBatch& batch, const at::Tensor& logits) const;
  void add_free_tokens(RowBatch& batch, std::span<const int64_t> tokens) const;

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  bool asks_for_tokens_;  // instead of logits
  // Whether drafted tokens are read on the host while drafting. A fixed window on a GPU runs ahead without waiting, and
  // what it drafted beyond an EOS is dropped afterwards.
  bool reads_tokens_;
  int64_t inside_;  // DrafterTraits::inside_target
};

// The next token of each row by greedy decoding or sampling, of its logits [B,V], which are processed in place;
// garbage for finished rows.
std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);
// Commits one token to each row that is not finished, and tells of it. Errors: RunError where it is kNoToken.
void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings);

// The baselines `greedy` and `sample`: one token a step from the target alone.
void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
