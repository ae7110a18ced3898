// Decoding with the target alone, one token a step: the baselines `greedy` and `sample`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/loop/decode_settings.h"
#include "infer/loop/row_batch.h"

namespace draftsmith::infer {

// Decodes every row to its end.
void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// Returns each row's next token, chosen greedily or by sampling from logits [B,V], which are processed in place.
// Finished rows get garbage. int64 [B] on the logits' device
at::Tensor choose_on_device(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);
// Returns the same on the host.
std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings);

// Commits one token to each row that is not finished, counts the target's run and notifies. kNoToken fails its row.
// A target that predicts `at_once` tokens in a run has one for a row's first token and one for each block.
void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings, int64_t at_once = 1);

}  // namespace draftsmith::infer
