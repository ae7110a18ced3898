#include "infer/forced/prediction_quality.h"

#include <algorithm>
#include <limits>

namespace draftsmith::infer {

ForcedLabels labels_of(std::span<const std::vector<int64_t>> outputs, std::span<const int64_t> first,
                       std::span<const int64_t> valid, int64_t width) {
  const auto rows = std::ssize(outputs);
  at::Tensor ids = at::zeros({rows, width}, at::kLong);
  at::Tensor counted = at::zeros({rows, width}, at::kBool);
  for (int64_t b = 0; b < rows; ++b) {
    const auto row = static_cast<size_t>(b);
    if (valid[row] == 0) continue;
    std::copy_n(outputs[row].begin() + first[row], valid[row], ids.data_ptr<int64_t>() + b * width);
    std::fill_n(counted.data_ptr<bool>() + b * width, valid[row], true);
  }
  return {ids, counted};
}

void QualitySums::add(const at::Tensor& logits, const at::Tensor& choice, const ForcedLabels& labels) {
  positions_ += labels.counted.sum().item<int64_t>();
  correct_ += (choice.eq(labels.ids) & labels.counted).sum().item<int64_t>();
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor known = labels.ids.clamp_max(logits.size(2) - 1);
  at::Tensor log_probs = wide.log_softmax(2).gather(2, known.unsqueeze(2)).squeeze(2);  // [B,L]
  log_probs = log_probs.masked_fill(known.ne(labels.ids), -std::numeric_limits<double>::infinity());
  nats_ -= log_probs.masked_fill(labels.counted.logical_not(), 0).to(at::kDouble).sum().item<double>();
}

void QualitySums::add(bool correct) {
  ++positions_;
  correct_ += correct ? 1 : 0;
  nats_ = std::numeric_limits<double>::quiet_NaN();
}

PredictionQuality QualitySums::mean() const {
  const auto positions = static_cast<double>(positions_);
  return {static_cast<double>(correct_) / positions, nats_ / positions};
}

}  // namespace draftsmith::infer
