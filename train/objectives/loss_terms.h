// The losses of all predictions that a trainable makes of a batch, computed together: what they share, a head or a
// teacher's block, is there once (train/objectives/linear_loss.h).
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

class LossTerms {
 public:
  // The labels of these predictions that their head has rows for; the same object for predictions of one model at the
  // same labels (its exits). It lives as long as this.
  const HeadLabels& labels(const Predictions& predictions);
  // A loss over labels(predictions), which counts `predictions.weight` times.
  void add(const Predictions& predictions, std::unique_ptr<LogitLoss> loss);
  // (1-e) CE + e uniform, see cross_entropy_loss().
  void add_cross_entropy(const Predictions& predictions, double label_smoothing);
  // Of all that was added, at least one; the count is the first one's. Once.
  Loss sum() const;

 private:
  struct Known {
    const model::TransformerModel* model;
    at::Tensor labels;
    HeadLabels in_head;
  };
  std::deque<Known> known_;
  std::vector<std::unique_ptr<LogitLoss>> losses_;
  std::vector<LinearLossTerm> terms_;
};

}  // namespace draftsmith::train
