// Logit distillation: lambda CE(ground truth) + (1 - lambda) T^2 D(p, q). p comes from a live teacher, from a teacher
// that the trained models run anyway, or from a stored cache; targets from the corpus or from samples of the student.
#pragma once

#include <memory>
#include <optional>

#include "base/aten.h"
#include "train/objectives/divergence.h"
#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"
#include "train/teacher/student_samples.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

// ---- The loss without logits [P,V] of all positions
// From a live or stored teacher (train/objectives/linear_loss.h, train/objectives/divergence.h).

// The labels and the teacher of a student.
struct Teaching {
  at::Tensor labels;                        // int64 [Q] rows of the student's head
  TeacherDistributions* teacher = nullptr;  // not read if lambda is 1
  at::Tensor positions = {};                // int64 [Q]: the teacher's positions of these labels
  const SharedRows* shared = nullptr;
  at::Tensor weights = {};  // [Q] as in PositionLoss
};

// Another teacher's distributions for several students that ask for the same blocks in turns (a model's exits). Each
// block is made once, and freed before the next is made.
class SharedTeacher : public TeacherDistributions {
 public:
  explicit SharedTeacher(TeacherDistributions& teacher) : teacher_(teacher) {}
  // Recognises the same positions by the same tensor memory.
  TeacherBlock block(const at::Tensor& positions) override;

 private:
  TeacherDistributions& teacher_;
  at::Tensor positions_;
  TeacherBlock block_;
};

// Returns the loss of the student's logits at its labels. Objects that `teaching` points to must outlive it. Its rows()
// throw std::logic_error for a top-k teacher if the student lacks ids.
std::unique_ptr<LogitLoss> make_distillation_loss(const Teaching& teaching, const DistillationTerms& terms);

// Returns the divergence of `terms` between a teacher and the predictions that are taught, and cross entropy for the
// others: the loss of Distill for one batch. `teacher` at the batch's labels; `sequences` as in LossTerms.
Loss distillation_loss(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                       const DistillationTerms& terms, const at::Tensor& sequences = {});

// ---- The objective

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
