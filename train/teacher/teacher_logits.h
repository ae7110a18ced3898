// A teacher's distributions at the targets of a corpus, by teacher-forced passes over it: what a cache is filled with.
#pragma once

#include <functional>
#include <vector>

#include "data/corpus/batches.h"
#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "model/transformer/transformer_model.h"
#include "train/teacher/teacher_rows.h"

namespace draftsmith::train {

class TeacherLogits {
 public:
  // Teacher and corpus must outlive it. `token_budget` as data::BatchOptions. Errors (UserError, all at once): a corpus
  // that does not fit the teacher, a teacher with a pruned vocabulary, more ids wanted than it has.
  TeacherLogits(model::TransformerModel& teacher, const data::Corpus& corpus, const StoredForm& form,
                int64_t token_budget);

  // Of all target tokens of the examples [first, last), example after example, on the host. Which examples are computed
  // together depends on the range alone. `progress` is given the positions of each batch as it is done; it may throw to
  // stop. Errors: RunError for logits that are not finite, naming examples.
  StoredRows rows(int64_t first, int64_t last, const std::function<void(int64_t)>& progress);

 private:
  void add_batch(const std::vector<int64_t>& examples, const std::vector<int64_t>& places, StoredRows& all);

  LiveTeacher teacher_;
  const model::ModelInfo& info_;
  const data::Corpus& corpus_;
  StoredForm form_;
  data::BatchOrder order_;
};

// Rows of the examples [first, last) as a cache takes them, one by one; valid as long as `rows`.
std::vector<data::TeacherRows> by_example(const StoredRows& rows, const data::Corpus& corpus, int64_t first,
                                          int64_t last);

}  // namespace draftsmith::train
