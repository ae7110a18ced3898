// A drafter on a single row, outside the decoding loop: what evaluations measure of drafters that are no models.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/drafters/drafter.h"

namespace draftsmith::infer {

class DrafterProbe {
 public:
  // Begins the row. `source` is empty for decoder-only targets; `tokens` are the start token or the prompt, then what
  // is committed already. The drafter must be one that proposes tokens, reads no encoder, and outlive the probe.
  DrafterProbe(Drafter& drafter, const model::ModelInfo& target, const std::vector<int64_t>& source,
               const std::vector<int64_t>& tokens);
  // The drafter's next token, kNoProposal where it has none.
  int64_t next_token();
  bool gives_logits() const { return drafter_.traits().logits; }
  // Logits [1,V] of the next token.
  at::Tensor next_logits();
  // The next token, as far as this window is concerned.
  void draft(int64_t token) { drafted_.front().push_back(token); }
  void forget_draft() { drafted_.front().clear(); }
  // The next token, once and for all. Nothing may be drafted.
  void commit(int64_t token);

 private:
  DraftRequest request() const;

  Drafter& drafter_;
  std::vector<Row> rows_;
  std::vector<int64_t> active_;
  std::vector<std::vector<int64_t>> drafted_;
};

}  // namespace draftsmith::infer
