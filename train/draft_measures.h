// Measures of a model in training as a drafter: a speculative decode with it, and its predictions on the target's own
// outputs, which that decode gives since it is lossless. Formulas: Leviathan et al. 2023, definition 3.1, section 3.3.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "train/options.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct DraftMeasures {
  double alpha = 0;                  // mean of sum_x min(p, q) over the positions that verification examined
  double tokens_per_target_run = 0;  // accepted tokens of a round and the target's own
  double alpha_forced = 0;           // mean of sum_x min(p, q) over all positions of the target's own outputs
  double agreement = 0;              // share of these positions where both find the same token most likely
};

struct DraftTask {
  model::TransformerModel* target = nullptr;  // nullptr: that of TextWriters
  const data::Tokenizer* tokenizer = nullptr;
  const std::vector<std::vector<int64_t>>& sources;  // decoder-only: prompts, not empty
  void (*stop_if_asked)() = nullptr;                 // called between batches
};

// Decodes the sources with the trained models as they are now. p and q are at options.draft_temperature; at 0, the
// sums are 1 where both find the same token most likely, else 0. Errors: UserError for models that do not fit.
DraftMeasures measure_drafts(const TrainableModel& trained, const DraftTask& task, const ValidationOptions& options);

}  // namespace draftsmith::train
