// Where distillation takes the teacher's distribution p from: a model that runs beside the student, the teacher that a
// trainable has run anyway, or a stored cache. All give it a few positions at a time, so that [P,V] never exists.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/aten.h"
#include "train/trainable/predictions.h"

namespace draftsmith::train {

// p at C positions, in one of two forms.
struct TeacherBlock {
  // Full: logits of all the teacher's ids at temperature 1, up to a constant for each position.
  at::Tensor logits = {};  // [C,V]
  // Top-k (`logits` undefined): some ids, the position's label always among them, and one bucket for all others.
  at::Tensor ids = {};            // int64 [C,K]: distinct within a row; -1: an unused place
  at::Tensor log_probs = {};      // [C,K] at the source's temperature(); anything where the id is -1
  at::Tensor tail_log_mass = {};  // [C]: log of the probability of all other ids together; -inf: none is left
};

// p at the labels of one micro-batch.
class TeacherDistributions {
 public:
  virtual ~TeacherDistributions() = default;
  // At positions int64 [C]: indices into the batch's labels, rising. On the labels' device, without gradients.
  virtual TeacherBlock block(const at::Tensor& positions) = 0;
};

class TeacherSource {
 public:
  virtual ~TeacherSource() = default;
  // What messages call it: a directory or file.
  virtual std::string name() const = 0;
  // Ids it may speak of: 0..vocabulary()-1. The same number means the same token to the student.
  virtual int64_t vocabulary() const = 0;
  // Temperature that its probabilities were made at; nothing: it gives logits, which serve every temperature.
  virtual std::optional<double> temperature() const = 0;
  // Of the model that runs, so that it can judge targets beside its corpus's (samples of the student); nullptr: none.
  virtual const model::ModelInfo* live() const { return nullptr; }
  // p at the labels of a batch (batch.examples are the corpus's). The batch must outlive it.
  virtual std::unique_ptr<TeacherDistributions> distributions(const Batch& batch) = 0;
};

// From hidden states and a head: `predictions` of the teacher at the batch's labels. Logits are computed by the block.
class HiddenTeacher : public TeacherDistributions {
 public:
  // Errors: UserError for a model with a pruned vocabulary, which gives most ids no probability.
  explicit HiddenTeacher(const Predictions& predictions);
  TeacherBlock block(const at::Tensor& positions) override;

 private:
  Predictions predictions_;
};

// A model that is given the student's batches. It must outlive the source.
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
