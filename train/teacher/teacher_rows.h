// Conversion of a teacher's distribution between tensors and the form that a cache stores
// (data/teacher/teacher_cache.h). The loss reads from a cache exactly read_rows(store_rows(logits)).
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

// Datasets of a cache at C positions, as tensors.
struct StoredRows {
  at::Tensor ids = {};              // int32 [C,k] ascending; undefined: whole distributions, k = V
  at::Tensor log_probs = {};        // fp16 [C,k]
  at::Tensor label_log_probs = {};  // fp16 [C]; undefined when whole
  at::Tensor tail_log_mass = {};    // fp16 [C]; undefined when whole
};

struct StoredForm {
  int64_t k = 0;  // ids of a position, 1..V; V: whole
  double temperature = 1;
};

// Returns the stored rows of logits [C,V] and labels int64 [C] of ids below V, on their device.
StoredRows store_rows(const at::Tensor& logits, const at::Tensor& labels, const StoredForm& form);

// Returns the block that an objective reads. Top-k: k+1 places, of which the last is the label's if it is not among the
// k. Whole: logits.
TeacherBlock read_rows(const StoredRows& rows, const at::Tensor& labels, double temperature);

}  // namespace draftsmith::train
