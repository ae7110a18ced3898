// The teacher's distribution at some positions in the form that a cache keeps it (data/teacher/teacher_cache.h), and
// back: what the loss reads from a cache is read_rows(store_rows(logits)).
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "train/objectives/teacher_source.h"

namespace draftsmith::train {

// At C positions. Datasets of a cache as tensors.
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

// Of logits [C,V] and labels int64 [C] of ids below V, on their device.
StoredRows store_rows(const at::Tensor& logits, const at::Tensor& labels, const StoredForm& form);

// What the objective is given. Top-k: k+1 places, the last the label's where it is none of the k. Whole: logits.
TeacherBlock read_rows(const StoredRows& rows, const at::Tensor& labels, double temperature);

}  // namespace draftsmith::train
