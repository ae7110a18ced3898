#include "train/objectives/loss_terms.h"

#include <algorithm>

#include "train/objectives/cross_entropy_loss.h"

namespace draftsmith::train {

const HeadLabels& LossTerms::labels(const Predictions& predictions) {
  const auto same = [&](const Known& known) {
    return known.model == predictions.model && known.labels.is_same(predictions.labels);
  };
  const auto found = std::find_if(known_.begin(), known_.end(), same);
  if (found != known_.end()) return found->in_head;
  known_.push_back({predictions.model, predictions.labels, labels_in_head(*predictions.model, predictions.labels)});
  return known_.back().in_head;
}

void LossTerms::add(const Predictions& predictions, std::unique_ptr<LogitLoss> loss) {
  terms_.push_back({.hidden = labels(predictions).of(predictions.hidden),
                    .head = head_of(predictions),
                    .loss = loss.get(),
                    .factor = predictions.weight});
  losses_.push_back(std::move(loss));
}

void LossTerms::add_cross_entropy(const Predictions& predictions, double label_smoothing) {
  add(predictions, cross_entropy_loss(labels(predictions).rows, label_smoothing));
}

Loss LossTerms::sum() const {
  return {linear_loss(terms_), terms_.front().hidden.size(0)};
}

}  // namespace draftsmith::train
