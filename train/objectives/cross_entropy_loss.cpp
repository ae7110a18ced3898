#include "train/objectives/cross_entropy_loss.h"

#include <algorithm>
#include <limits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "base/device_kernels.h"
#include "train/kernel_texts.h"

namespace draftsmith::train {
namespace {

constexpr unsigned kThreads = 1024;

// By LibTorch's operators, on any device.
at::Tensor cross_entropy_by_operators(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
  at::Tensor losses = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1).neg();
  const auto vocabulary = static_cast<double>(logits.size(1));
  if (smoothing > 0) losses = losses * (1 - smoothing) - log_probs.sum(1) * (smoothing / vocabulary);
  if (!slope) return losses;
  at::exp_out(logits, log_probs);
  cross_entropy_gradient(logits, labels, smoothing);
  return losses;
}

at::Tensor cross_entropy_on_gpu(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  static DeviceKernels kernels(cross_entropy_source());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool takes = logits.scalar_type() == at::kFloat && logits.numel() > 0 && logits.size(0) <= kMost &&
                     logits.size(1) <= kMost - kThreads && logits.is_contiguous() && labels.is_contiguous();
  const void* kernel = takes ? kernels.find(logits.device(), "cross_entropy", logits.scalar_type()) : nullptr;
  if (kernel == nullptr) return cross_entropy_by_operators(logits, labels, smoothing, slope);
  at::Tensor losses = at::empty({logits.size(0)}, logits.options());
  kernels.launch(kernel, logits.device(), {static_cast<unsigned>(logits.size(0))}, {kThreads},
                 logits.mutable_data_ptr(), labels.const_data_ptr(), losses.mutable_data_ptr(),
                 static_cast<int>(logits.size(1)), smoothing, slope ? 1 : 0);
  return losses;
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def("cross_entropy(Tensor(a!) logits, Tensor labels, float smoothing, bool slope) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("cross_entropy", &cross_entropy_by_operators);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("cross_entropy", &cross_entropy_on_gpu);
}

}  // namespace

void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing) {
  if (smoothing > 0) probabilities.sub_(smoothing / static_cast<double>(probabilities.size(1)));
  probabilities.scatter_add_(1, labels.unsqueeze(1),
                             at::full({labels.size(0), 1}, smoothing - 1, probabilities.options()));
}

KernelSource cross_entropy_source() {
  return kernel_source(train_kernel_texts(), "train/objectives/kernels/cross_entropy.cu");
}

at::Tensor cross_entropy_losses(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("draftsmith::cross_entropy", "")
                                 .typed<at::Tensor(at::Tensor&, const at::Tensor&, double, bool)>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return handle.call(logits, labels, smoothing, slope);
}

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
