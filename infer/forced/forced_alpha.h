// How well a drafter predicts a target on given outputs, teacher-forced: alpha_forced and greedy agreement on the
// target's own, accuracy and cross entropy on references (methods.md §3). It needs no decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
#include "infer/forced/prediction_quality.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/sampling/sampling.h"
#include "model/kinds/exits.h"
#include "model/transformer/language_model.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

struct ForcedAlpha {
  double alpha = 0;      // mean of sum_x min(p, q) of the warped distributions; at temperature 0 equal to agreement
  double agreement = 0;  // share of positions where both find the same token most likely
  int64_t positions = 0;
  PredictionQuality target = {};   // of the outputs' own tokens
  PredictionQuality drafter = {};  // the same
};

struct ForcedPair {
  model::LanguageModel& target;
  model::LanguageModel& drafter;
};

// Over all positions of outputs[i] given sources[i] (decoder-only: prompts, which are not counted; they may not be
// empty). Ids mean the same to both models; the drafter may have fewer of them. Batches of up to `batch_size` rows. No
// positions: all members are 0.
ForcedAlpha alpha_forced(const ForcedPair& models, std::span<const std::vector<int64_t>> sources,
                         std::span<const std::vector<int64_t>> outputs, const Warping& warping,
                         int64_t batch_size = 16);

// The same for a drafter that is no model, row by row. Where it proposes nothing the overlap is 0.
ForcedAlpha alpha_forced(model::LanguageModel& target, Drafter& drafter, std::span<const std::vector<int64_t>> sources,
                         std::span<const std::vector<int64_t>> outputs, const Warping& warping);

// The same for a Tandem secondary of the target, in blocks of `block` tokens (0: the γ it was trained with): the
// representations that it reads are the target's up to a block's beginning, as in decoding when all is accepted.
ForcedAlpha alpha_forced_tandem(model::LanguageModel& target, model::TransformerModel& secondary,
                                const ForcedBatch& texts, const Warping& warping, int64_t block = 0);

// A model and which of its layers draft.
struct ExitDrafting {
  model::TransformerModel& model;
  int64_t layers = 1;                   // 1..N
  const model::Exits* exits = nullptr;  // nullptr: the model's own final norm and head
};

// The same for an exit of the target, from one pass: it reads the hidden states of its layer.
ForcedAlpha alpha_forced_exit(const ExitDrafting& drafting, const ForcedBatch& texts, const Warping& warping);

}  // namespace draftsmith::infer
