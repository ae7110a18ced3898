#include "train/objectives/cross_entropy.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "base/device_kernels.h"

namespace draftsmith {

std::span<const KernelText> train_kernel_texts();  // files *.cu and *.cuh below train/, made by CMake

}  // namespace draftsmith

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

at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing) {
  const at::Tensor nll = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1).neg();
  if (smoothing == 0) return nll;
  const at::Tensor all = log_probs.sum(1).neg() / log_probs.size(1);
  return nll * (1 - smoothing) + all * smoothing;
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

Targets targets_of(const Predictions& predictions, const at::Tensor& sequences) {
  Targets targets{.labels = labels_in_head(*predictions.model, predictions.labels)};
  if (!sequences.defined()) return targets;
  const at::Tensor of_label = sequences.index_select(0, targets.labels.kept);  // [Q]
  const at::Tensor labels = at::bincount(of_label);                            // [sequences]
  targets.weights = labels.index_select(0, of_label).to(at::kDouble).reciprocal();
  targets.sequences = labels.gt(0).sum().item<int64_t>();
  return targets;
}

// Predictions that share their targets and their loss.
struct SharedLoss {
  const Predictions* first;
  Targets targets;
  std::shared_ptr<PositionLoss> loss;
};

}  // namespace

std::shared_ptr<PositionLoss> cross_entropy_loss(const Targets& targets, double label_smoothing) {
  return std::make_shared<SmoothedCrossEntropy>(targets.labels.rows, label_smoothing, targets.weights);
}

Loss sum_of_losses(const TrainableOutput& output, const at::Tensor& sequences, const MakeLoss& make) {
  std::deque<SharedLoss> all;
  std::vector<LossTerm> terms;
  for (const Predictions& own : output.predictions) {
    const auto same = [&](const SharedLoss& one) {
      return one.first->model == own.model && one.first->labels.is_same(own.labels) && one.first->taught == own.taught;
    };
    auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) {
      const SharedLoss& added = all.emplace_back(SharedLoss{&own, targets_of(own, sequences), nullptr});
      all.back().loss = make(own, added.targets);
      found = all.end() - 1;
    }
    terms.push_back({.hidden = found->targets.labels.of(own.hidden),
                     .head = head_of(own),
                     .loss = found->loss,
                     .factor = own.weight});
  }
  Loss loss{linear_loss(terms), terms.front().hidden.size(0)};
  if (sequences.defined()) loss.sequences = all.front().targets.sequences;
  return loss;
}

Loss cross_entropy_of(const TrainableOutput& output, double label_smoothing, const at::Tensor& sequences) {
  return sum_of_losses(output, sequences, [&](const Predictions&, const Targets& targets) {
    return cross_entropy_loss(targets, label_smoothing);
  });
}

Prediction predict(const at::Tensor& hidden, const model::HeadWeights& head, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  const at::Tensor arg_maxs = at::empty_like(labels);
  const auto loss = std::make_shared<Predicting>(labels, arg_maxs);
  return {.loss = {linear_loss({{.hidden = hidden, .head = head, .loss = loss}}), hidden.size(0)},
          .arg_maxs = arg_maxs};
}

Fields<CrossEntropyOptions> CrossEntropyOptions::fields() {
  return Fields<CrossEntropyOptions>("cross entropy")
      .add("label_smoothing", &CrossEntropyOptions::label_smoothing, Range{0, 0.99},
           "Share e of the target distribution that is spread evenly over the vocabulary: "
           "loss = (1-e) * -log q(y) + e/V * sum of -log q(v). 0: off.");
}

Loss CrossEntropy::loss(TrainableModel& trainable, const Batch& batch, const model::DropoutContext& dropout) {
  return cross_entropy_of(trainable.forward(batch, dropout), options_.label_smoothing);
}

}  // namespace draftsmith::train
