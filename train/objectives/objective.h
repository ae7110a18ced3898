// Objectives: what training minimises. An objective runs a trainable model on a micro-batch and returns its loss as
// (sum, divisor). The trainer divides once, over all micro-batches of a step, so that gradient accumulation equals one
// large batch. If a model makes several predictions, the loss is the weighted sum of their losses, and the counts are
// those of the first prediction.
//
// A new objective is a class in objective.cpp, its options below, and its name in make_objective().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/aten.h"
#include "base/options.h"
#include "train/objectives/linear_loss.h"
#include "train/objectives/losses.h"
#include "train/teacher/teacher_source.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct Loss {
  at::Tensor sum;     // scalar, fp32 (fp64 for an fp64 model); with a gradient unless gradients are off
  int64_t count = 0;  // labels
  // Sequences with labels. Present if the sum is one of sequences' mean losses, which is divided by their number.
  std::optional<int64_t> sequences = {};

  // Returns what the sum is divided by.
  int64_t divisor() const { return sequences.value_or(count); }
};

// Measures of one validation batch.
struct Prediction {
  Loss loss;            // plain cross entropy, without smoothing
  at::Tensor arg_maxs;  // int64 [P]: the model's own choice at each label
};

class Objective {
 public:
  virtual ~Objective() = default;
  // Returns the loss of one micro-batch. Runs no backward pass.
  virtual Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) = 0;
};

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  static Fields<CrossEntropyOptions> fields();
};

struct ObjectiveOptions {
  std::string name = "cross_entropy";
  CrossEntropyOptions cross_entropy = {};
  DistillOptions distill = {};
  static Fields<ObjectiveOptions> fields();
};

// Inputs of objectives beside the batches. Pointers must outlive the objective.
struct ObjectiveInputs {
  const TrainableModel* trainable = nullptr;
  const data::Corpus* corpus = nullptr;  // the source of the batches
  TeacherSource* teacher = nullptr;      // of distill; nullptr: the teacher that the trainable model runs anyway
  int64_t token_budget = 0;              // of batches that an objective makes, as data::BatchOptions; 0: none
};

// Makes the objective that the options name. Errors: UserError for options out of range and for inputs that do not
// fit the objective.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options, const ObjectiveInputs& inputs = {});

// Returns whether the named objective learns from a teacher's distributions.
inline bool needs_teacher(const ObjectiveOptions& options) {
  return options.name == "distill";
}

// ---- Losses of predictions, of which the objectives are made

// The labels of predictions that their head has rows for, and what their losses weigh.
struct Targets {
  HeadLabels labels;        // Q of them
  at::Tensor weights = {};  // [Q] as in PositionLoss
  int64_t sequences = 0;    // that have labels in the head
};

// Returns the cross entropy at these targets.
std::shared_ptr<PositionLoss> cross_entropy_loss(const Targets& targets, double label_smoothing);

// Returns the loss of a student's logits at its targets. `teacher`, which must outlive it, is at the P labels that the
// targets were taken from. Its rows() throw std::logic_error for a top-k teacher if the student lacks ids.
std::shared_ptr<PositionLoss> distillation_loss(const Targets& targets, TeacherDistributions& teacher,
                                                SharedRows shared, const DistillOptions& options);

// Returns the loss of distillation for one batch: for the predictions that are taught, and cross entropy for the
// others. `teacher` is at the batch's labels. `sequences` int64 [P]: the number of each label's sequence, from 0 on; if
// given, the loss is a sum of sequences' mean losses.
Loss distillation_of(const TrainableOutput& output, TeacherDistributions& teacher, int64_t teacher_vocabulary,
                     const DistillOptions& options, const at::Tensor& sequences = {});

// Returns the cross entropy without smoothing and the arg max at each position; no gradients, little memory.
Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels);

}  // namespace draftsmith::train
