// Logit distillation: lambda CE(ground truth) + (1 - lambda) T^2 D(p, q). p comes from a live teacher, from a teacher
// that the trained models run anyway, or from a stored cache; targets from the corpus or from samples of the student.
#pragma once

#include <optional>

#include "train/objectives/distillation_loss.h"
#include "train/objectives/objective.h"
#include "train/teacher/student_samples.h"

namespace draftsmith::train {

// Returns the divergence of `terms` between a teacher and the predictions that are taught, and cross entropy for the
// others: the loss of Distill for one batch. `teacher` at the batch's labels; `sequences` as in LossTerms.
Loss distillation_loss(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                       const DistillationTerms& terms, const at::Tensor& sequences = {});

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
  bool by_sequence_;        // normalization is "sequences"
  TeacherSource* teacher_;  // nullptr: the trained models' own
  std::optional<StudentSamples> samples_;
};

}  // namespace draftsmith::train
