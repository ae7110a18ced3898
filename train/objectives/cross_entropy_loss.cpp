#include "train/objectives/cross_entropy_loss.h"

#include <ATen/core/grad_mode.h>

namespace draftsmith::train {

namespace {

class SmoothedCrossEntropy : public PositionLoss {
 public:
  SmoothedCrossEntropy(at::Tensor labels, double smoothing, at::Tensor weights)
      : PositionLoss(std::move(weights)), labels_(std::move(labels)), smoothing_(smoothing) {}

 protected:
  at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool gradient) override {
    const at::Tensor labels = labels_.narrow(0, rows.begin, rows.count);
    if (!logits.is_cpu()) return cross_entropy_losses(logits, labels, smoothing_, gradient);
    const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
    const at::Tensor values = cross_entropy_values(log_probs, labels, smoothing_);
    if (gradient) cross_entropy_gradient(at::exp_out(logits, log_probs), labels, smoothing_);
    return values;
  }

 private:
  at::Tensor labels_;  // [P]
  double smoothing_;
};

// Cross entropy that remembers where the logits are largest.
class Predicting : public PositionLoss {
 public:
  Predicting(at::Tensor labels, at::Tensor arg_maxs) : labels_(std::move(labels)), arg_maxs_(std::move(arg_maxs)) {}

 protected:
  at::Tensor losses(at::Tensor& logits, const PositionRange& rows, bool /*gradient*/) override {
    const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
    arg_maxs_.narrow(0, rows.begin, rows.count).copy_(log_probs.argmax(1));
    return cross_entropy_values(log_probs, labels_.narrow(0, rows.begin, rows.count), 0);
  }

 private:
  at::Tensor labels_, arg_maxs_;  // [P]
};

}  // namespace

at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing) {
  const at::Tensor nll = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1).neg();
  if (smoothing == 0) return nll;
  const at::Tensor all = log_probs.sum(1).neg() / log_probs.size(1);
  return nll * (1 - smoothing) + all * smoothing;
}

std::unique_ptr<LogitLoss> cross_entropy_loss(at::Tensor labels, double label_smoothing, at::Tensor weights) {
  return std::make_unique<SmoothedCrossEntropy>(std::move(labels), label_smoothing, std::move(weights));
}

Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor arg_maxs = at::empty_like(labels);
  Predicting loss(labels, arg_maxs);
  return {.loss = {linear_loss({{.hidden = hidden, .head = head, .loss = &loss}}), hidden.size(0)},
          .arg_maxs = arg_maxs};
}

}  // namespace draftsmith::train
