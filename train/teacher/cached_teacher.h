// A teacher's stored distributions as a source for distillation (data/teacher/teacher_cache.h). The teacher itself is
// not needed.
#pragma once

#include <utility>

#include "data/teacher/teacher_cache.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

class CachedTeacher : public TeacherSource {
 public:
  // The cache is of the corpus that batches are made of (data::corpus_hash).
  explicit CachedTeacher(data::TeacherCache cache) : cache_(std::move(cache)) {}
  std::string name() const override { return cache_.file().string(); }
  int64_t vocabulary() const override { return cache_.info().vocabulary; }
  // Returns nothing for whole distributions: their logs are logits, which serve every temperature.
  std::optional<double> temperature() const override;
  // Errors: std::logic_error for a batch that is not of the cache's corpus.
  std::unique_ptr<TeacherDistributions> distributions(const Batch& batch) override;

 private:
  data::TeacherCache cache_;
};

}  // namespace draftsmith::train
