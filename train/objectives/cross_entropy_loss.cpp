#include "train/objectives/cross_entropy_loss.h"

#include <ATen/core/grad_mode.h>

namespace draftsmith::train {

namespace {

class SmoothedCrossEntropy : public LogitLoss {
 public:
  SmoothedCrossEntropy(at::Tensor labels, double smoothing) : labels_(std::move(labels)), smoothing_(smoothing) {}

  at::Tensor rows(at::Tensor& logits, const PositionRange& rows, bool gradient) override {
    const at::Tensor labels = labels_.narrow(0, rows.begin, rows.count);
    if (!logits.is_cpu()) return cross_entropy_losses(logits, labels, smoothing_, gradient).sum();
    const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
    const at::Tensor sum = cross_entropy_sum(log_probs, labels, smoothing_);
    if (gradient) cross_entropy_gradient(at::exp_out(logits, log_probs), labels, smoothing_);
    return sum;
  }

 private:
  at::Tensor labels_;  // [P]
  double smoothing_;
};

// Cross entropy that remembers where the logits are largest.
class Predicting : public LogitLoss {
 public:
  Predicting(at::Tensor labels, at::Tensor arg_maxs) : labels_(std::move(labels)), arg_maxs_(std::move(arg_maxs)) {}

  at::Tensor rows(at::Tensor& logits, const PositionRange& rows, bool /*gradient*/) override {
    const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
    arg_maxs_.narrow(0, rows.begin, rows.count).copy_(log_probs.argmax(1));
    return cross_entropy_sum(log_probs, labels_.narrow(0, rows.begin, rows.count), 0);
  }

 private:
  at::Tensor labels_, arg_maxs_;  // [P]
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing) {
  const at::Tensor nll = log_probs.gather(1, labels.unsqueeze(1)).sum().neg();
  if (smoothing == 0) return nll;
  const at::Tensor all = log_probs.sum().neg() / log_probs.size(1);
  return nll * (1 - smoothing) + all * smoothing;
}

std::unique_ptr<LogitLoss> cross_entropy_loss(at::Tensor labels, double label_smoothing) {
  return std::make_unique<SmoothedCrossEntropy>(std::move(labels), label_smoothing);
}

Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor arg_maxs = at::empty_like(labels);
  Predicting loss(labels, arg_maxs);
  return {.loss = {linear_loss({{.hidden = hidden, .head = head, .loss = &loss}}), hidden.size(0)},
          .arg_maxs = arg_maxs};
}

}  // namespace draftsmith::train
