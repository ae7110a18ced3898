// The loss of logit distillation without [P,V] (linear_loss.h):
//   lambda CE(labels, q_1) + (1 - lambda) T^2 D(p_T, q_T),   q_T = softmax(z / T), p_T the teacher's likewise.
//
// D compares the ids that teacher and student both have; both distributions are normalised over those. So ids that pad
// the larger vocabulary never make D infinite, and a student with a pruned vocabulary learns the teacher's
// probabilities of the ids that it can give. CE is over all the student's ids.
//
// In top-k form D compares coarser distributions over k ids, the label, and one bucket for all other ids. It is never
// above the full form (data processing inequality), and equals it if no id is left for the bucket. The student must
// have all the teacher's ids: missing ones would be part of the bucket and could not be separated from it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/aten.h"
#include "model/transformer/transformer_config.h"
#include "train/objectives/divergence.h"
#include "train/objectives/linear_loss.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

struct DistillationTerms {
  double lambda = 0.5;  // in [0,1]
  DivergenceKind kind = {};
  double temperature = 1.0;      // T > 0
  double label_smoothing = 0.0;  // of CE
};

// The ids that teacher and student both have, as rows of the student's head. Ids rise with rows, so these are the first
// rows.
struct SharedRows {
  SharedRows(const model::TransformerConfig& student, int64_t teacher_vocabulary, at::Device device = at::kCPU);

  int64_t shared = 0;   // rows
  at::Tensor ids = {};  // int64 [shared]: ids of these rows; undefined: their own numbers
  bool lacks = false;   // the teacher has ids that the student does not have
};

// The labels and the teacher of a student.
struct Teaching {
  at::Tensor labels;                        // int64 [Q] rows of the student's head
  TeacherDistributions* teacher = nullptr;  // not read if lambda is 1
  at::Tensor positions = {};                // int64 [Q]: the teacher's positions of these labels
  const SharedRows* shared = nullptr;
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

// Returns the sum of D alone at a few positions, without T^2; log_q [C,n] is the student's over the shared rows at the
// temperature. No gradients. Errors: as make_distillation_loss().
at::Tensor divergence_sum(const at::Tensor& log_q, const TeacherBlock& teacher, const SharedRows& shared,
                          const DistillationTerms& terms);

// Returns the loss of the student's logits at its labels. Objects that `teaching` points to must outlive it. Its rows()
// throw std::logic_error for a top-k teacher if the student lacks ids.
std::unique_ptr<LogitLoss> make_distillation_loss(const Teaching& teaching, const DistillationTerms& terms);

}  // namespace draftsmith::train
