// The loss of logit distillation without [P,V] (linear_loss.h, distillation_sum.h), from a live or stored teacher.
#pragma once

#include <memory>

#include "base/aten.h"
#include "train/objectives/distillation_sum.h"
#include "train/objectives/linear_loss.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

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

}  // namespace draftsmith::train
