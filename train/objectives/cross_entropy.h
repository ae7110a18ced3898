// The objective of plain training: cross entropy of the labels (train/objectives/cross_entropy_loss.h).
#pragma once

#include "train/objectives/objective.h"

namespace draftsmith::train {

class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options) : options_(options) {}
  Loss loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  CrossEntropyOptions options_;
};

// Returns the loss of all predictions, over the labels that their heads have rows for. `sequences` as in LossTerms.
Loss cross_entropy_of(const TrainableOutput& output, double label_smoothing, const at::Tensor& sequences = {});

}  // namespace draftsmith::train
