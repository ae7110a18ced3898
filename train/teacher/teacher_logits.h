// A teacher's distributions at the targets of a corpus, by teacher-forced passes over it: the content of a cache.
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

  // Returns the rows of all target tokens of the examples [first, last), example after example, on the host. The range
  // alone decides which examples are computed together. `progress` receives the number of positions of each finished
  // batch; it may throw to stop. Errors: RunError for logits that are not finite, naming examples.
  StoredRows rows(int64_t first, int64_t last, const std::function<void(int64_t)>& progress);

 private:
  void add_batch(const std::vector<int64_t>& examples, const std::vector<int64_t>& places, StoredRows& all);

  LiveTeacher teacher_;
  const model::ModelInfo& info_;
  const data::Corpus& corpus_;
  StoredForm form_;
  data::BatchOrder order_;
};

// Returns the rows of the examples [first, last) one by one, as a cache takes them; valid as long as `rows`.
std::vector<data::TeacherRows> by_example(const StoredRows& rows, const data::Corpus& corpus, int64_t first,
                                          int64_t last);

}  // namespace draftsmith::train
