#include "train/objectives/cross_entropy.h"

#include "train/objectives/cross_entropy_loss.h"

namespace draftsmith::train {

Loss cross_entropy_of(const TrainableOutput& output, double label_smoothing, const at::Tensor& sequences) {
  LossTerms terms(sequences);
  for (const Predictions& predictions : output.predictions) terms.add_cross_entropy(predictions, label_smoothing);
  return terms.sum();
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

ObjectiveEntry cross_entropy_objective() {
  return {.name = "cross_entropy",
          .make = [](const ObjectiveOptions& options, const ObjectiveInputs&) -> std::unique_ptr<Objective> {
            return std::make_unique<CrossEntropy>(options.cross_entropy);
          }};
}

}  // namespace draftsmith::train
