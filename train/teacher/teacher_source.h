// Sources of the teacher's distribution p: a model that runs beside the student, a teacher that the trained models run
// anyway, or a stored cache. All give it a few positions at a time, so that [P,V] never exists.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/aten.h"
#include "base/error.h"
#include "data/corpus/corpus.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// p at C positions, in one of two forms.
struct TeacherBlock {
  // Full: logits of the ids that were asked for, at temperature 1 and up to a constant for each position.
  at::Tensor logits = {};  // [C,n]
  // Top-k (`logits` undefined): some ids, the position's label always among them, and one bucket for all others.
  at::Tensor ids = {};            // int64 [C,K]: distinct within a row; -1: an unused place
  at::Tensor log_probs = {};      // [C,K] at the source's temperature(); anything where the id is -1
  at::Tensor tail_log_mass = {};  // [C]: log of the probability of all other ids together; -inf: none is left
};

// p at the labels of one micro-batch.
class TeacherDistributions {
 public:
  virtual ~TeacherDistributions() = default;
  // Returns p at positions int64 [C]: indices into the batch's labels, rising. On the labels' device, without
  // gradients. `ids` int64 [n]: whose logits are wanted; undefined: all, n = V. Top-k forms have the stored ids.
  virtual TeacherBlock block(const at::Tensor& positions, const at::Tensor& ids) = 0;
};

class TeacherSource {
 public:
  virtual ~TeacherSource() = default;
  // Returns a directory or file, for messages.
  virtual std::string name() const = 0;
  // Returns V: its ids are 0..V-1. The same number means the same token to the student.
  virtual int64_t vocabulary() const = 0;
  // Returns the temperature of its probabilities; nothing: it gives logits, which serve every temperature.
  virtual std::optional<double> temperature() const = 0;
  // Returns the info of a model that runs and can judge other targets than the corpus's (samples of the student);
  // nullptr: none.
  virtual const model::ModelInfo* live() const { return nullptr; }
  // Returns p at the labels of a batch (batch.examples are the corpus's). The batch must outlive it.
  virtual std::unique_ptr<TeacherDistributions> distributions(const Batch& batch) = 0;

  // Adds a problem for each reason why it cannot judge the corpus's labels, or read the batches made for the student.
  void check(const data::Corpus& corpus, const model::ModelInfo& student, Problems& problems) const;
};

// The teacher's distributions from hidden states and a head: `predictions` of the teacher at the batch's labels. Logits
// are computed block by block, with the head's rows of the wanted ids alone unless the head is packed.
class HiddenTeacher : public TeacherDistributions {
 public:
  // Errors: UserError for a model with a pruned vocabulary, which gives most ids no probability.
  explicit HiddenTeacher(const Predictions& predictions);
  TeacherBlock block(const at::Tensor& positions, const at::Tensor& ids) override;

 private:
  Predictions predictions_;
};

// A teacher that runs on the student's batches. The model must outlive the source.
class LiveTeacher : public TeacherSource {
 public:
  // Errors: as HiddenTeacher.
  explicit LiveTeacher(model::TransformerModel& model);
  std::string name() const override { return model_.info().name; }
  int64_t vocabulary() const override { return model_.info().vocabulary; }
  std::optional<double> temperature() const override { return std::nullopt; }
  const model::ModelInfo* live() const override { return &model_.info(); }
  std::unique_ptr<TeacherDistributions> distributions(const Batch& batch) override;

 private:
  model::TransformerModel& model_;
};

}  // namespace draftsmith::train
