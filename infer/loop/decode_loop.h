// The loops of decoding: with the target alone, draft -> verify -> commit, and draft -> keep -> read. Each row of the
// batch advances at its own pace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/loop/drafting.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

// Every loop decodes its rows to their ends. `timer` must be in kOther, as it is afterwards; the rows share its time.

// ---- The target alone, one token a step: the baselines `greedy` and `sample`

void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// Returns each row's next token, chosen greedily or by sampling from logits [B,V], which are processed in place.
// Finished rows get garbage.
std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);

// Commits one token to each row that is not finished, counts the target's run and notifies. kNoToken fails its row.
// A target that predicts `at_once` tokens in a run has one for a row's first token and one for each block.
void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings, int64_t at_once = 1);

// ---- With a drafter

// Drafts and verifies; or, by the acceptance rule's TargetRole, keeps every draft and lets the target read it. The
// drafter must have processed the batch's prompts.
void decode_with_drafts(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings,
                        RowBatch& batch, PhaseTimer& timer);

// Judgement on the device in one tensor, with the drafted tokens or without: one copy brings all to the host.
struct PackedJudgement {
  at::Tensor columns;    // int64 [B,C]: accepted, next, the drafted tokens, the bits of the overlap's fp64
  int64_t tokens = 0;    // columns of drafted tokens
  bool overlap = false;  // the overlap was measured

  // Returns the drafted tokens, int64 [B,G], from a copy of the columns on the host.
  at::Tensor tokens_of(const at::Tensor& host) const { return host.narrow(1, 2, tokens); }
  // Returns the judgement from this copy.
  Judgement judgement_of(const at::Tensor& host) const;
};

// Packs a judgement and, if defined, the drafted tokens [B,G] on the device.
PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens);

// Returns a device's judgement on the host, and fills draft.on_host, if drafting did not, from `tokens`, the drafted
// tokens [B,G] on the device (Draft::drawn()): one transfer for all.
Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft);

// Commits the accepted tokens of each row's draft, of which the host has the tokens, and the target's next token.
// Counts the round, and tells the window rule and the batch's listener. Tokens behind a draft's first EOS count for
// nothing, nor does the overlap at a position whose logits are no numbers. Finished rows stay as they are.
void commit_judgement(RowBatch& batch, const Draft& draft, const Judgement& judgement, const DraftParts& parts,
                      std::span<const int64_t> eos);

}  // namespace draftsmith::infer
