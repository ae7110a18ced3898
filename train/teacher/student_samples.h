// Targets that the student samples itself, for on-policy distillation (DistillSpec, Zhou et al. 2024; GKD, Agarwal et
// al. 2024): the drafter learns in the contexts that its own drafts lead to.
#pragma once

#include <cstdint>

#include "base/options.h"
#include "data/corpus/corpus.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct OnPolicyOptions {
  double share = 0.0;  // of micro-batches; 0: off
  double temperature = 1.0;
  int64_t max_new_tokens = 128;
  uint64_t seed = 1;
  static Fields<OnPolicyOptions> fields();
};

class StudentSamples {
 public:
  // The corpus must outlive it. `token_budget` as data::BatchOptions; 0: none. `teacher_positions`: the live teacher's
  // context, in tokens; 0: any.
  StudentSamples(const OnPolicyOptions& options, const data::Corpus& corpus, int64_t token_budget = 0,
                 int64_t teacher_positions = 0)
      : options_(options), corpus_(&corpus), token_budget_(token_budget), teacher_positions_(teacher_positions) {}

  // Returns whether a micro-batch is sampled from the student: a function of (seed, micro-step), so that a resumed run
  // decides the same.
  bool takes(uint64_t micro_step) const;

  // Returns a batch of the same sources with targets sampled from the student in its present state. Random numbers are
  // functions of (seed, micro-step, row, token). Ids that the corpus's tokenizer does not have end a sample. Samples
  // may be longer than the corpus's targets: then only the first examples that fit the budget stay. Student and live
  // teacher must have a position for each token: longer samples are cut there.
  Batch batch(const TrainableModel& student, const Batch& given, uint64_t micro_step) const;

 private:
  OnPolicyOptions options_;
  const data::Corpus* corpus_;
  int64_t token_budget_ = 0;
  int64_t teacher_positions_ = 0;
};

}  // namespace draftsmith::train
