// What training minimises. An objective runs the trainable on a micro-batch and returns its loss as (sum, count); the
// trainer divides once, over all micro-batches of a step, so that gradient accumulation equals the large batch. Where a
// trainable makes several predictions, the loss is the sum of theirs times their weights, and the count the first
// one's.
//
// A new objective is a file in this folder and a line in objectives/registry.cpp.
#pragma once

#include <memory>
#include <string>

#include "base/aten.h"
#include "base/options.h"
#include "train/objectives/student_samples.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct Loss {
  at::Tensor sum;     // scalar, fp32 (fp64 for an fp64 model); with a gradient unless gradients are off
  int64_t count = 0;  // what the sum is to be divided by: labels
};

// What a validation reads of a batch, beside the loss.
struct Prediction {
  Loss loss;            // plain cross entropy, without smoothing
  at::Tensor arg_maxs;  // int64 [P]: the model's own choice at each label
};

class Objective {
 public:
  virtual ~Objective() = default;
  // The loss of one micro-batch. Runs no backward.
  virtual Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) = 0;
};

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  static Fields<CrossEntropyOptions> fields();
};

struct DistillOptions {
  double lambda = 0.5;
  std::string divergence = "forward_kl";
  double beta = 0.5;
  double temperature = 1.0;
  double label_smoothing = 0.0;
  OnPolicyOptions on_policy = {};
  static Fields<DistillOptions> fields();
};

struct ObjectiveOptions {
  std::string name = "cross_entropy";
  CrossEntropyOptions cross_entropy = {};
  DistillOptions distill = {};
  static Fields<ObjectiveOptions> fields();
};

class TeacherSource;  // train/objectives/teacher_source.h

// What objectives may need of the run, beside its batches. Pointers must outlive the objective.
struct ObjectiveInputs {
  const TrainableModel* trainable = nullptr;
  const data::Corpus* corpus = nullptr;  // that the batches are made of
  TeacherSource* teacher = nullptr;      // of distill; nullptr: the one that the trainable runs anyway
  int64_t token_budget = 0;              // of batches that an objective makes, as data::BatchOptions; 0: none
};

// The objective that the options name. The list is in registry.cpp. Errors: UserError for options out of range and for
// inputs that do not serve the objective.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options, const ObjectiveInputs& inputs = {});

}  // namespace draftsmith::train
