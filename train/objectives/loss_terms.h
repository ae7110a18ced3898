// The losses of all predictions of a batch, computed together: a head or a teacher's block that several of them share
// is used once (train/objectives/linear_loss.h).
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "train/objectives/linear_loss.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {

class LossTerms {
 public:
  // `sequences` int64 [P]: the number of each label's sequence, from 0 on. If it is given, the loss of a sequence is
  // the mean over its labels that the head has rows for, and the sum is over sequences. All predictions are at P
  // labels.
  explicit LossTerms(at::Tensor sequences = {}) : sequences_(std::move(sequences)) {}

  // Returns the labels of these predictions that their head has rows for; the same object for predictions of one model
  // at the same labels (its exits). It lives as long as this.
  const HeadLabels& labels(const Predictions& predictions) { return known(predictions).in_head; }
  // Returns the weights of the losses at these labels; undefined without sequences.
  const at::Tensor& weights(const Predictions& predictions) { return known(predictions).weights; }
  // Adds a loss over labels(predictions) with the weight `predictions.weight`.
  void add(const Predictions& predictions, std::unique_ptr<LogitLoss> loss);
  // Adds (1-e) CE + e uniform, see cross_entropy_loss().
  void add_cross_entropy(const Predictions& predictions, double label_smoothing);
  // Returns the sum of all added losses, at least one; the counts are the first one's. Call it once.
  Loss sum() const;

 private:
  struct Known {
    const model::TransformerModel* model;
    at::Tensor labels;
    HeadLabels in_head;
    at::Tensor weights = {};  // [Q]
    int64_t sequences = 0;    // that have labels in the head
  };
  const Known& known(const Predictions& predictions);

  at::Tensor sequences_;
  std::deque<Known> known_;
  std::vector<std::unique_ptr<LogitLoss>> losses_;
  std::vector<LinearLossTerm> terms_;
};

}  // namespace draftsmith::train
