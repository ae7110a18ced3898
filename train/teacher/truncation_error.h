// The error of distilling from a cache of k ids: the losses of a sample of positions as a student reads them from such
// a cache, beside the losses over all ids.
#pragma once

#include <string>

#include "base/logging.h"
#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::train {

struct TruncationSample {
  const data::Corpus& corpus;
  int64_t positions = 2000;  // about so many, of examples spread evenly over the corpus
  int64_t k = 0;             // of the cache itself; measured beside 8, 32, 128 and V
  double temperature = 1;    // of both p and q
  double flattened = 1;      // divisor of the student's logits: a flattened teacher can stand in for a student
  ProgressStyle progress = ProgressStyle::kQuiet;
};

// Refuses a student (`name` in messages) that lacks ids of the teacher, since no top-k cache can teach it. Errors:
// UserError.
void require_measurable(const model::TransformerConfig& teacher, const model::TransformerConfig& student,
                        const std::string& name);

// Measures the error for a teacher and a student, which is unpacked and has parameters(). Losses are those of
// make_distillation_loss(), over all ids in fp64. Errors: require_measurable; Interrupted, between two batches.
data::TruncationError truncation_error(model::TransformerModel& teacher, model::TransformerModel& student,
                                       const TruncationSample& sample);

}  // namespace draftsmith::train
