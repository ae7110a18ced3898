// Logit distillation: lambda CE(ground truth) + (1 - lambda) T^2 D(p, q), p from a live teacher, from the teacher that
// the trainable has run anyway, or from a stored cache; on the corpus's targets or on samples of the student.
#pragma once

#include <optional>

#include "train/objectives/distillation_loss.h"
#include "train/objectives/objective.h"
#include "train/objectives/student_samples.h"

namespace draftsmith::train {

// The divergence of `terms` between a teacher and the first prediction that is taught, and cross entropy elsewhere:
// what Distill is for one batch. `teacher` at the batch's labels.
Loss distillation_loss(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                       const DistillationTerms& terms);

class Distill : public Objective {
 public:
  // Errors (UserError, all at once): no teacher, one that does not fit the student or the corpus, a cache of another
  // temperature, samples of a student without a live teacher or of one that cannot decode alone. loss() refuses, at the
  // first batch, a student that lacks ids of a top-k cache.
  Distill(const DistillOptions& options, const ObjectiveInputs& inputs);
  Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  Loss on(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout,
          const DistillationTerms& terms);

  DistillationTerms terms_;
  TeacherSource* teacher_;  // nullptr: the trainable's own
  std::optional<StudentSamples> samples_;
};

}  // namespace draftsmith::train
