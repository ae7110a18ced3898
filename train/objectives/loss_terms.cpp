#include "train/objectives/loss_terms.h"

#include <algorithm>

#include "train/objectives/cross_entropy_loss.h"

namespace draftsmith::train {

const LossTerms::Known& LossTerms::known(const Predictions& predictions) {
  const auto same = [&](const Known& one) {
    return one.model == predictions.model && one.labels.is_same(predictions.labels);
  };
  const auto found = std::find_if(known_.begin(), known_.end(), same);
  if (found != known_.end()) return *found;
  known_.push_back({predictions.model, predictions.labels, labels_in_head(*predictions.model, predictions.labels)});
  Known& added = known_.back();
  if (sequences_.defined()) {
    const at::Tensor of_label = sequences_.index_select(0, added.in_head.kept);  // [Q]
    const at::Tensor labels = at::bincount(of_label);                            // [sequences]
    added.weights = labels.index_select(0, of_label).to(at::kDouble).reciprocal();
    added.sequences = labels.gt(0).sum().item<int64_t>();
  }
  return added;
}

void LossTerms::add(const Predictions& predictions, std::unique_ptr<LogitLoss> loss) {
  terms_.push_back({.hidden = labels(predictions).of(predictions.hidden),
                    .head = head_of(predictions),
                    .loss = loss.get(),
                    .factor = predictions.weight});
  losses_.push_back(std::move(loss));
}

void LossTerms::add_cross_entropy(const Predictions& predictions, double label_smoothing) {
  const Known& there = known(predictions);
  add(predictions, cross_entropy_loss(there.in_head.rows, label_smoothing, there.weights));
}

Loss LossTerms::sum() const {
  Loss loss{linear_loss(terms_), terms_.front().hidden.size(0)};
  if (sequences_.defined()) loss.sequences = known_.front().sequences;
  return loss;
}

}  // namespace draftsmith::train
