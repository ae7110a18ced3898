// Measures of a model in training as a drafter: a speculative decode with it, and its predictions on the target's own
// outputs, which that decode gives since it is lossless. Formulas: Leviathan et al. 2023, definition 3.1, section 3.3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

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

// Sums that the measures are made of. Processes send them to each other.
struct DraftSums {
  double overlap = 0;  // over the positions that verification examined
  int64_t examined = 0;
  int64_t emitted = 0;  // tokens, in `target_runs` runs
  int64_t target_runs = 0;
  double forced_overlap = 0;  // over all positions of the outputs
  int64_t same = 0;           // positions where both find the same token most likely
  int64_t positions = 0;

  void add(const nlohmann::json& part);  // of to_json()
  DraftMeasures means() const;
};

nlohmann::json to_json(const DraftSums& sums);

struct DraftTask {
  model::TransformerModel* target = nullptr;  // nullptr: that of TextWriters
  const data::Tokenizer* tokenizer = nullptr;
  std::span<const std::vector<int64_t>> sources;  // decoder-only: prompts, not empty
  int64_t first_source = 0;                       // number of the first one, on which samples depend
  void (*stop_if_asked)() = nullptr;              // called between batches
};

// Decodes the sources with the trained models as they are now. p and q are at options.draft_temperature; at 0, the
// sums are 1 where both find the same token most likely, else 0. Errors: UserError for models that do not fit.
DraftSums measure_drafts(const TrainableModel& trained, const DraftTask& task, const ValidationOptions& options);

}  // namespace draftsmith::train
