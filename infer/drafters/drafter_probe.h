// A drafter on a single row, outside the decoding loop: what evaluations measure of drafters that are no models.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/drafters/drafter.h"

namespace draftsmith::infer {

// Drafter at work on one row.
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
