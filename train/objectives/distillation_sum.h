// The losses of logit distillation at a few positions, by LibTorch's operators:
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
#include <utility>

#include "base/aten.h"
#include "model/transformer/transformer_config.h"
#include "train/objectives/divergence.h"
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
  SharedRows(int64_t count, at::Tensor ids_of_rows) : shared(count), ids(std::move(ids_of_rows)) {}

  int64_t shared = 0;   // rows
  at::Tensor ids = {};  // int64 [shared]: ids of these rows; undefined: their own numbers
  bool lacks = false;   // the teacher has ids that the student does not have
};

// Returns the losses [C] of positions with the student's logits [C,V], fp32 or fp64, and labels int64 [C]. The teacher
// is not read if lambda is 1. With `slope`, logits become the slope along them; else they may change. Errors:
// std::logic_error for a top-k teacher if the student lacks ids.
at::Tensor distillation_losses(at::Tensor& logits, const at::Tensor& labels, const TeacherBlock& teacher,
                               const SharedRows& shared, const DistillationTerms& terms, bool slope);

}  // namespace draftsmith::train
