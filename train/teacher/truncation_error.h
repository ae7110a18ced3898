// What distilling from a cache of k ids costs: the losses of a sample of positions as a student reads them from such a
// cache, beside those over all ids.
#pragma once

#include <string>

#include "base/progress.h"
#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::train {

struct TruncationSample {
  const data::Corpus& corpus;
  int64_t positions = 2000;  // about so many, of examples spread evenly over the corpus
  int64_t k = 0;             // of the cache itself; measured beside 8, 32, 128 and V
  double temperature = 1;    // of both p and q
  double flattened = 1;      // what the student's logits are divided by: the teacher made flatter stands in for one
  ProgressStyle progress = ProgressStyle::kQuiet;
};

// UserError for a student (`name` in messages) that lacks ids of the teacher, which no cache of some ids can teach.
void require_measurable(const model::TransformerConfig& teacher, const model::TransformerConfig& student,
                        const std::string& name);

// Of a teacher and the student whose q it is compared with, which is unpacked and has parameters(). Losses
// as distillation()'s, those over all ids in fp64. Errors: require_measurable; Interrupted, between two batches.
data::TruncationError truncation_error(model::TransformerModel& teacher, model::TransformerModel& student,
                                       const TruncationSample& sample);

}  // namespace draftsmith::train
