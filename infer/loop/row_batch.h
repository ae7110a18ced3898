// The rows that are decoded together, with the target's state.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "infer/loop/rows.h"
#include "infer/loop/timing.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

struct RowBatch {
  std::vector<Row> rows;
  std::unique_ptr<model::DecodeState> state;  // the target's; holds all but each row's last committed token
  std::vector<Row> finished;                  // rows that left the batch
  OnTokens on_tokens;                         // may be empty

  // Passes the tokens of `row` from index `before` on to on_tokens. remove_finished() reports the end of failed rows.
  void notify(const Row& row, int64_t before) const;
  // Returns the share that each unfinished row has in a step of the batch: 1 over their number.
  double share_of_step() const;
  // Returns whether enough rows are finished for remove_finished() to move them.
  bool shrinks() const;
  // Moves finished rows to `finished` once a quarter of the batch is finished: states copy their caches to shrink.
  // Returns the indices of the rows that stay, or none if nothing changed.
  std::vector<int64_t> remove_finished();
  // Divides a batch's time equally among the rows that worked: those that were not finished at the last call.
  void add_time(const PhaseSeconds& seconds);
  // Does so with the timer's time if a row has finished since then. (Rows that go on together share later times
  // alike, and a GPU must be waited for to read its clock.)
  void share_time(PhaseTimer& timer);
};

}  // namespace draftsmith::infer
