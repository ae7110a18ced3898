// How well a drafter predicts a target on given outputs, teacher-forced: alpha_forced and greedy agreement on the
// target's own, accuracy and cross entropy on references (methods.md §3). It needs no decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
#include "infer/forced/alpha_sums.h"
#include "infer/sampling/sampling.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

struct ForcedPair {
  model::LanguageModel& target;
  model::LanguageModel& drafter;
};

// Measures all positions of outputs[i] given sources[i] (decoder-only: prompts, which are not counted; they may not be
// empty). Ids mean the same to both models; the drafter may have fewer of them. Batches of up to `batch_size` rows. No
// positions: all members are 0.
ForcedAlpha measure_forced_alpha(const ForcedPair& models, std::span<const std::vector<int64_t>> sources,
                                 std::span<const std::vector<int64_t>> outputs, const Warping& warping,
                                 int64_t batch_size = kForcedRows);

// Measures a drafter that is no model, row by row. Where it proposes nothing the overlap is 0.
ForcedAlpha measure_forced_alpha(model::LanguageModel& target, Drafter& drafter,
                                 std::span<const std::vector<int64_t>> sources,
                                 std::span<const std::vector<int64_t>> outputs, const Warping& warping);

}  // namespace draftsmith::infer
