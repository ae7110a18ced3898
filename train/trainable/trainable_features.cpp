#include "train/trainable/trainable_features.h"

#include <algorithm>
#include <cmath>

#include "base/device_tensors.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "train/teacher/cached_teacher.h"

namespace draftsmith::train {

FeatureTrainable::FeatureTrainable(model::TransformerModel& drafter, model::TransformerModel& target,
                                   FeatureTrainableOptions options)
    : OneModelTrainable(drafter, model::features_kind()), target_(target), options_(std::move(options)) {
  model::require_feature_pair(drafter.config(), target.config(), {drafter.info().name, target.info().name});
  drafter.borrow(target);
}

model::ForwardOutput FeatureTrainable::target_states(const Batch& batch) {
  const std::vector<int64_t>& read = model_.config().features.layers;
  if (!options_.states.cache || batch.corpus != options_.states.corpus) {
    model::ForwardInput input = input_of(batch);
    input.hidden_layers = read;
    return target_.forward(input);
  }
  const model::ForwardOutput stored = stored_pass(*options_.states.cache, batch);
  const std::vector<int64_t>& layers = options_.states.cache->info().states.layers;
  const auto of_layer = [&](int64_t layer) {
    return stored.layers.at(static_cast<size_t>(std::ranges::find(layers, layer) - layers.begin())).to(info().dtype);
  };
  model::ForwardOutput output{.hidden = {}, .layers = {}, .encoder = stored.encoder};
  for (const int64_t layer : read) output.layers.push_back(of_layer(layer));
  if (layers.back() == target_.config().decoder_layers) output.hidden = target_.finish(of_layer(layers.back()));
  return output;
}

namespace {

// Returns the places of labels, and before each so many whose states later steps read. int64 [N]; undefined: all.
at::Tensor read_places(const Batch& batch, int64_t before) {
  if (!batch.source.lengths.empty()) return {};
  const at::Tensor read = at::zeros({batch.decoder_input.tokens.numel()}, at::kBool);
  const at::Tensor labels = at::tensor(batch.places, at::kLong);
  for (int64_t back = 0; back <= before; ++back) read.index_fill_(0, (labels - back).clamp_min(0), true);
  return upload(read.nonzero().squeeze(1), batch.labels.device());
}

}  // namespace

TrainableOutput FeatureTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  const model::FeatureShape& shape = model_.config().features;
  model::FeatureInput input{.target = batch.decoder_input,
                            .source_lengths = batch.source.lengths,
                            .steps = shape.unrolled,
                            .read = read_places(batch, shape.unrolled - 1)};
  TrainableOutput output;
  {
    const PlainArithmetic plain(info().device.type(), target_.decoding_only());
    const model::ForwardOutput target = target_states(batch);
    for (const at::Tensor& layer : target.layers) input.layers.push_back(layer.to(info().dtype));
    if (target.encoder.defined()) input.encoder = target.encoder.to(info().dtype);
    if (target.hidden.defined()) {
      output.teacher = {.model = &target_, .hidden = at_labels(target.hidden, batch), .labels = batch.labels};
    }
  }
  double all = 0;
  for (int64_t step = 0; step < shape.unrolled; ++step) all += std::pow(options_.decay, step);
  const model::TransformerModel& with_head = model_.config().own_head() ? model_ : target_;
  at::Tensor before;  // [P,r] of the token before each label
  model::HeadWeights biased;
  if (shape.markov_rank > 0) {
    before = at_labels(model_.markov_input(batch.decoder_input.tokens), batch);
    biased = model::own_head(with_head);
    biased.up = model_.parameters().at("feature_markov.next.weight");
  }
  for (const at::Tensor& hidden : model_.forward_features(input, dropout)) {
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

void FeatureTrainable::save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_with_companion(directory, model_, options_.target_directory, options);
}

}  // namespace draftsmith::train
