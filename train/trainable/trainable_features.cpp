#include "train/trainable/trainable_features.h"

#include <cmath>

#include "base/device_tensors.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"

namespace draftsmith::train {

FeatureTrainable::FeatureTrainable(model::TransformerModel& drafter, model::TransformerModel& target,
                                   FeatureTrainableOptions options)
    : drafter_(drafter), target_(target), options_(std::move(options)) {
  model::require_feature_pair(drafter.config(), target.config(), {drafter.info().name, target.info().name});
  drafter.borrow(target);
}

TrainableOutput FeatureTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  const model::FeatureShape& shape = drafter_.config().features;
  model::FeatureInput input{
      .target = batch.decoder_input, .source_lengths = batch.source.lengths, .steps = shape.unrolled};
  TrainableOutput output;
  {
    const PlainArithmetic plain(info().device.type());
    model::ForwardInput read = input_of(batch);
    read.hidden_layers = shape.layers;
    model::ForwardOutput target = target_.forward(read);
    for (const at::Tensor& layer : target.layers) input.layers.push_back(layer.to(info().dtype));
    if (target.encoder.defined()) input.encoder = target.encoder.to(info().dtype);
    output.teacher = {.model = &target_, .hidden = at_labels(target.hidden, batch), .labels = batch.labels};
  }
  double all = 0;
  for (int64_t step = 0; step < shape.unrolled; ++step) all += std::pow(options_.decay, step);
  const model::TransformerModel& with_head = drafter_.config().own_head() ? drafter_ : target_;
  at::Tensor before;  // [P,r] of the token before each label
  model::HeadWeights biased;
  if (shape.markov_rank > 0) {
    before = at_labels(drafter_.markov_input(batch.decoder_input.tokens), batch);
    biased = model::own_head(with_head);
    biased.up = drafter_.parameters().at("feature_markov.next.weight");
  }
  for (const at::Tensor& hidden : drafter_.forward_features(input, dropout)) {
    const size_t step = output.predictions.size();
    Predictions& added = output.predictions.emplace_back(Predictions{.model = &with_head,
                                                                     .hidden = at_labels(hidden, batch),
                                                                     .labels = batch.labels,
                                                                     .weight = std::pow(options_.decay, step) / all});
    if (step == 0 || !before.defined()) continue;
    added.hidden = at::cat({added.hidden, before}, 1);
    added.head = biased;
  }
  return output;
}

void FeatureTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_model(directory, drafter_, options);
}

void FeatureTrainable::save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_with_companion(directory, drafter_, options_.target_directory, options);
}

void FeatureTrainable::load(const std::filesystem::path& directory) {
  const model::LoadOptions options{.device = info().device, .dtype = info().dtype, .pack = false};
  const auto stored = model::load_with_companion(model::features_kind(), directory, {}, options);
  copy_parameters(stored->parameters(), drafter_.parameters(), directory.string());
}

}  // namespace draftsmith::train
