// Logit distillation: lambda CE(ground truth) + (1 - lambda) T^2 D(p, q) (train/objectives/divergence.h). p comes from
// a live teacher, from a teacher that the trained models run anyway, or from a stored cache; targets from the corpus or
// from samples of the student. Logits [P,V] of all positions never exist together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/aten.h"
#include "train/objectives/cross_entropy.h"
#include "train/objectives/divergence.h"
#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"
#include "train/teacher/student_samples.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

// Returns the loss of a student's logits at its targets. `teacher`, which must outlive it, is at the P labels that the
// targets were taken from. Its rows() throw std::logic_error for a top-k teacher if the student lacks ids.
std::shared_ptr<PositionLoss> distillation_loss(const Targets& targets, TeacherDistributions& teacher,
                                                SharedRows shared, const DistillOptions& options);

// Returns the loss of Distill for one batch: that of distillation for the predictions that are taught, and cross
// entropy for the others. `teacher` at the batch's labels; `sequences` as in sum_of_losses().
Loss distillation_of(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                     const DistillOptions& options, const at::Tensor& sequences = {});

// ---- The objective

class Distill : public Objective {
 public:
  // A teacher is given, or the trained models teach; samples need models that decode and a live teacher. Errors
  // (UserError, all at once): a teacher that does not fit the student or the corpus, a cache of another temperature.
  // loss() refuses, at the first batch, a student that lacks ids of a top-k cache.
  Distill(const DistillOptions& options, const ObjectiveInputs& inputs);
  Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  Loss on(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout,
          const DistillOptions& options);

  DistillOptions options_;
  TeacherSource* teacher_;  // nullptr: the trained models' own
  std::optional<StudentSamples> samples_;
};

}  // namespace draftsmith::train
