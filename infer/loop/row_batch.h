// The rows that are decoded together, with the target's state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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

  // Passes the tokens of `row` from index `before` on to on_tokens.
  void notify(const Row& row, int64_t before) const;
  // Moves finished rows to `finished` once a quarter of the batch is finished: states copy their caches to shrink.
  // Returns the indices of the rows that stay, or none if nothing changed.
  std::vector<int64_t> remove_finished();
  // Divides a batch's time equally among the rows that are not finished.
  void add_time(const PhaseSeconds& seconds);
};

// Returns `token` unless it is kNoToken. Errors: RunError that names the input line and the new token's index
// `position`. `owner` of the logits: "target" or "drafter".
int64_t checked_token(const Row& row, int64_t position, int64_t token, const std::string& owner);

}  // namespace draftsmith::infer
