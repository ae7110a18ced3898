#include "train/trainable/tandem_trainables.h"

#include <algorithm>
#include <stdexcept>

#include "base/device_tensors.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/companion.h"

namespace draftsmith::train {
namespace {

constexpr const char* kPrimaryPrefix = "primary.";
// Differs from the secondary's seed, so that the two models' dropout masks are independent.
constexpr uint64_t kPrimarySeed = 0x7072696d61727900;

}  // namespace

const NamedValues<TandemConfiguration>& tandem_configurations() {
  using enum TandemConfiguration;
  static const NamedValues<TandemConfiguration> kConfigurations("Tandem configuration",
                                                                {{"primary_frozen", kPrimaryFrozen},
                                                                 {"both_secondary_loss", kBothSecondaryLoss},
                                                                 {"both_both_losses", kBothBothLosses}});
  return kConfigurations;
}

TandemTrainable::TandemTrainable(model::TransformerModel& secondary, model::TransformerModel& primary,
                                 TandemTrainableOptions options)
    : secondary_(secondary),
      primary_(primary),
      options_(std::move(options)),
      info_(of_both(secondary.info(), primary.info())),
      parameters_(secondary.parameters()) {
  model::require_tandem_pair(secondary.config(), primary.config(), {secondary.info().name, primary.info().name});
  // Both models read a batch's ids, so neither may lack any.
  info_.vocabulary = std::min(info_.vocabulary, primary.info().vocabulary);
  if (trains_primary()) parameters_.merge(with_prefix(kPrimaryPrefix, primary.parameters()));
}

model::ForwardOutput TandemTrainable::run_primary(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input = input_of(batch);
  input.hidden_layers = secondary_.config().tandem.layer_map;
  if (trains_primary()) {
    model::DropoutContext own = dropout;
    own.seed ^= kPrimarySeed;
    return primary_.forward(input, own);
  }
  const PlainArithmetic plain(info().device.type(), primary_.decoding_only());
  model::ForwardOutput output = primary_.forward(input);
  // Its type may be narrower than the secondary's.
  for (at::Tensor& layer : output.layers) layer = layer.to(info().dtype);
  if (output.encoder.defined()) output.encoder = output.encoder.to(info().dtype);
  return output;
}

TrainableOutput TandemTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardOutput primary = run_primary(batch, dropout);
  const model::PrimaryStates states{.layers = std::move(primary.layers), .encoder = primary.encoder};
  model::ForwardInput input = input_of(batch);
  input.primary = &states;
  const at::Tensor hidden = secondary_.forward(input, dropout).hidden;  // [B,T,D]
  const at::Tensor primary_hidden = at_labels(primary.hidden, batch);   // [P,D_L]
  TrainableOutput output;
  output.predictions = {{.model = &secondary_, .hidden = at_labels(hidden, batch), .labels = batch.labels}};
  if (options_.configuration == TandemConfiguration::kBothBothLosses) {
    output.predictions.push_back(
        {.model = &primary_, .hidden = primary_hidden, .labels = batch.labels, .taught = false});
  }
  // The head cannot read the type that autocast produced.
  const at::Tensor taught_by = primary_hidden.detach().to(primary_.info().dtype);
  output.teacher = {.model = &primary_, .hidden = taught_by, .labels = batch.labels};
  return output;
}

TextWriters TandemTrainable::text_writers() const {
  TextWriters writers;
  // A frozen primary is as it was loaded, and belongs to somebody else.
  writers.target = trains_primary() ? std::shared_ptr<model::TransformerModel>(packed_copy(primary_))
                                    : std::shared_ptr<model::TransformerModel>(std::shared_ptr<void>(), &primary_);
  writers.tandem = packed_copy(secondary_);
  writers.block = secondary_.config().tandem.block;
  return writers;
}

// Checkpoints are written often, so the primary inside is not named by its hash, for which it would be read back.
void TandemTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  if (trains_primary()) {
    model::save_tandem(directory, secondary_, {.files = options, .primary = &primary_, .record_primary = false});
  } else {
    model::save_model(directory, secondary_, options);
  }
}

void TandemTrainable::save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  if (trains_primary()) {
    model::save_tandem(directory, secondary_, {.files = options, .primary = &primary_});
  } else {
    model::save_tandem(
        directory, secondary_,
        {.files = options, .primary_directory = options_.primary_directory, .copy_primary = options_.copy_primary});
  }
}

void TandemTrainable::load(const std::filesystem::path& directory) {
  const model::LoadOptions options{.device = info().device, .dtype = info().dtype, .pack = false};
  auto stored = model::load_with_companion(model::tandem_kind(), directory, {}, options)->parameters();
  if (trains_primary()) {
    stored.merge(with_prefix(
        kPrimaryPrefix,
        model::load_model(model::companion_directory(model::tandem_kind(), directory), options)->parameters()));
  }
  copy_parameters(stored, parameters_, directory.string());
}

SharedEncoderTrainable::SharedEncoderTrainable(model::TransformerModel& drafter, model::TransformerModel& target,
                                               SharedEncoderOptions options)
    : OneModelTrainable(drafter, model::shared_encoder_kind()),
      target_(target),
      options_(std::move(options)),
      info_(of_both(drafter.info(), target.info())) {
  model::require_shared_encoder_pair(drafter.config(), target.config(), {drafter.info().name, target.info().name});
  info_.vocabulary = std::min(info_.vocabulary, target.info().vocabulary);
}

at::Tensor SharedEncoderTrainable::read_target(const Batch& batch, TrainableOutput& output) {
  const PlainArithmetic plain(info_.device.type(), target_.decoding_only());
  if (!options_.teaches) return target_.encode(batch.source).hidden;
  const model::ForwardOutput read = target_.forward(input_of(batch));
  output.teacher = {.model = &target_, .hidden = at_labels(read.hidden, batch), .labels = batch.labels};
  return read.encoder;
}

TrainableOutput SharedEncoderTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  TrainableOutput output;
  model::ForwardInput input = input_of(batch);
  input.shared_encoder = read_target(batch, output).to(info_.dtype);  // its type may be narrower than the drafter's
  const at::Tensor hidden = model_.forward(input, dropout).hidden;    // [B,T,D]
  output.predictions = {{.model = &model_, .hidden = at_labels(hidden, batch), .labels = batch.labels}};
  return output;
}

TextWriters SharedEncoderTrainable::text_writers() const {
  TextWriters writers;
  // The target is as it was loaded, and belongs to somebody else.
  writers.target = {std::shared_ptr<void>(), &target_};
  writers.shared_encoder = packed_copy(model_);
  return writers;
}

void SharedEncoderTrainable::save_result(const std::filesystem::path& directory,
                                         const model::SaveOptions& options) const {
  model::save_with_companion(directory, model_, options_.target_directory, options);
}

namespace {

// The predicted labels, and their positions in the flattened [B*T]. The label at a position is the token after it; it
// is predicted γ tokens before that token, if the text has begun there. They lie on the host, so that counting does not
// wait for a device.
struct PredictedLabels {
  std::vector<int64_t> labels;
  std::vector<int64_t> places;
};

PredictedLabels predicted_labels(const Batch& batch, int64_t block) {
  const int64_t width = batch.decoder_input.tokens.size(1);
  PredictedLabels predicted;
  size_t segment = 0;
  int64_t row = -1, begin = 0, end = 0;  // of the text around a label, flattened
  for (size_t i = 0; i < batch.places.size(); ++i) {
    const int64_t place = batch.places[i];
    while (place >= end) {
      const auto& segments = batch.decoder_input.segments;
      const bool next_row = row < 0 || segments.empty() || segment == segments[static_cast<size_t>(row)].size();
      if (next_row) {
        ++row;
        segment = 0;
        end = row * width;
      }
      begin = end;
      end += segments.empty() ? width : segments[static_cast<size_t>(row)][segment++];
    }
    if (place + 1 - block < begin) continue;
    predicted.labels.push_back(static_cast<int64_t>(i));
    predicted.places.push_back(place + 1 - block);
  }
  return predicted;
}

at::Tensor on_device(const std::vector<int64_t>& numbers, at::Device device) {
  return upload(at::tensor(numbers, at::kLong), device);
}

}  // namespace

BlockPredictionTrainable::BlockPredictionTrainable(model::TransformerModel& model)
    : OneModelTrainable(model, model::block_prediction_kind()) {
  if (model.config().block_attention < 1) throw std::logic_error("the model predicts no blocks");
}

TrainableOutput BlockPredictionTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input;
  input.target = batch.decoder_input;
  const at::Tensor hidden = model_.forward(input, dropout).hidden;  // [B,T,D]
  const PredictedLabels predicted = predicted_labels(batch, model_.config().block_attention);
  return {.predictions = {{.model = &model_,
                           .hidden = hidden.flatten(0, 1).index_select(0, on_device(predicted.places, info().device)),
                           .labels = batch.labels.index_select(0, on_device(predicted.labels, info().device))}}};
}

DeepTandemTrainable::DeepTandemTrainable(model::DeepTandemModel& model)
    : model_(model), info_(of_both(model.info(), model.large().info())), parameters_(model.parameters()) {}

TrainableOutput DeepTandemTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  const at::Tensor hidden = model_.forward(batch.decoder_input, dropout);  // [B,T,D_S]
  return {.predictions = {{.model = &model_.small(), .hidden = at_labels(hidden, batch), .labels = batch.labels}}};
}

void DeepTandemTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_deep_tandem(directory, model_, options);
}

void DeepTandemTrainable::load(const std::filesystem::path& directory) {
  const auto stored =
      model::load_deep_tandem(directory, {.device = info().device, .dtype = info().dtype, .pack = false});
  copy_parameters(stored->parameters(), parameters_, directory.string());
}

}  // namespace draftsmith::train
