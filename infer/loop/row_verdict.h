// The end of a round on the host: what it decided for each row, and how accepted drafts and the target's next tokens
// become text and are counted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/loop/drafting.h"

namespace draftsmith::infer {

struct RowVerdict {
  int64_t accepted = 0;  // drafted tokens that are kept
  int64_t next = 0;      // the target's token after them; kNoToken: bad logits
  bool rolled_back = false;
  std::span<const double> overlap{};  // sum_x min(p, q) of each examined position; empty: not measured
};

// Judgement on the device in one tensor, with the drafted tokens or without: one copy brings all to the host.
struct PackedJudgement {
  at::Tensor columns;              // int64 [B,C]: accepted, next, then the others
  int64_t tokens = 0;              // columns of drafted tokens
  int64_t rolled_back = 0;         // column of it
  std::optional<int64_t> overlap;  // columns of it, the bits of fp64; nullopt: not measured

  // Returns the drafted tokens, int64 [B,G], from a copy of the columns on the host.
  at::Tensor tokens_of(const at::Tensor& host) const { return host.narrow(1, 2, tokens); }
  // Returns the judgement from this copy.
  Judgement judgement_of(const at::Tensor& host) const;
};

// Packs a judgement and, if defined, the drafted tokens [B,G] on the device.
PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens);

// Returns the judgement on the host. On a GPU it also fills draft.on_host, if drafting did not, from `tokens`, the
// drafted tokens [B,G] on the device (Draft::drawn()): one transfer for all. On the CPU nothing is copied.
Judgement fetch(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft);
// The transfer of fetch(), whatever the device.
Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft);

// Returns the verdicts [B] of a judgement on the host, which must outlive them. Tokens behind a draft's first EOS count
// for nothing, nor does the overlap at a position whose logits are no numbers.
std::vector<RowVerdict> row_verdicts(const Judgement& judgement, const Draft& draft);

// Commits the accepted tokens of each row's draft and the target's next token, counts the round, and tells the window
// rule and the batch's listener. Finished rows stay as they are. `verdicts` [B] of the draft, of which the host has the
// tokens.
void commit_verdicts(RowBatch& batch, const Draft& draft, std::span<const RowVerdict> verdicts, const DraftParts& parts,
                     std::span<const int64_t> eos);

}  // namespace draftsmith::infer
