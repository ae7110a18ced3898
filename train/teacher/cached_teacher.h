// Distillation from a cache (data/teacher/teacher_cache.h): the conversion between tensors and the form that a cache
// stores, the passes of a teacher over a corpus that fill one, and what reads one: a source, and stored passes.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/aten.h"
#include "data/corpus/batches.h"
#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "model/transformer/transformer_model.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

// Datasets of a cache at C positions, as tensors.
struct StoredRows {
  at::Tensor ids = {};                  // int32 [C,k] ascending; undefined: whole distributions, k = V
  at::Tensor log_probs = {};            // fp16 [C,k]
  at::Tensor label_log_probs = {};      // fp16 [C]; undefined when whole
  at::Tensor tail_log_mass = {};        // fp16 [C]; undefined when whole
  std::vector<at::Tensor> states = {};  // bf16 [rows,D] of each example, if stored

  // Returns the rows of each of the examples [first, last), of which all are. They are valid as long as these tensors,
  // which are on the host.
  std::vector<data::TeacherRows> by_example(const data::Corpus& corpus, int64_t first, int64_t last) const;
};

// Returns the stored rows of logits [C,V] and labels int64 [C] of ids below V, on their device, for a cache of `form`'s
// k and temperature.
StoredRows store_rows(const at::Tensor& logits, const at::Tensor& labels, const data::TeacherCacheInfo& form);

// Returns the block that an objective reads. Top-k: k+1 places, of which the last is the label's if it is not among the
// k. Whole: logits.
TeacherBlock read_rows(const StoredRows& rows, const at::Tensor& labels, double temperature);

// A teacher's distributions at the targets of a corpus, by teacher-forced passes over it: the content of a cache.
class TeacherLogits {
 public:
  // Teacher and corpus must outlive it. `token_budget` as data::BatchOptions. Errors (UserError, all at once): a corpus
  // that does not fit the teacher, a teacher with a pruned vocabulary, more ids wanted than it has.
  TeacherLogits(model::TransformerModel& teacher, const data::Corpus& corpus, data::TeacherCacheInfo form,
                int64_t token_budget);

  // Returns the bytes that the examples [first, last) take in a cache.
  uint64_t bytes(int64_t first, int64_t last) const;

  // Returns the rows of all target tokens of the examples [first, last), example after example, on the host. The range
  // alone decides which examples are computed together. `progress` receives the number of positions of each finished
  // batch; it may throw to stop. Errors: RunError for logits or states that are not finite, naming an example.
  StoredRows rows(int64_t first, int64_t last, const std::function<void(int64_t)>& progress);

 private:
  // Copies the distributions of a batch to their places, int64 [P].
  void add_distributions(const at::Tensor& hidden, const Batch& batch, const at::Tensor& places, StoredRows& all) const;
  // Copies the states of a batch, of which `all` begin with the example `first`.
  void add_states(const model::ForwardOutput& output, const Batch& batch, int64_t first, StoredRows& all) const;

  model::TransformerModel& teacher_;
  const data::Corpus& corpus_;
  data::TeacherCacheInfo form_;
  data::BatchOrder order_;
};

// Returns a pass of the teacher over a batch of the cache's corpus: all `layers` that are stored, in bf16 and zero at
// padding, without `hidden`. Errors: std::logic_error for a batch of another corpus.
model::ForwardOutput stored_pass(const data::TeacherCache& cache, const Batch& batch);

// A teacher's stored distributions as a source.
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
