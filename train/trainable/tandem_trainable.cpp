#include "train/trainable/tandem_trainable.h"

#include <algorithm>

#include "train/plain_arithmetic.h"

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
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  input.hidden_layers = secondary_.config().tandem.layer_map;
  if (trains_primary()) {
    model::DropoutContext own = dropout;
    own.seed ^= kPrimarySeed;
    return primary_.forward(input, own);
  }
  const PlainArithmetic plain(info().device.type());
  model::ForwardOutput output = primary_.forward(input);
  // Its type may be narrower than the secondary's.
  for (at::Tensor& layer : output.layers) layer = layer.to(info().dtype);
  if (output.encoder.defined()) output.encoder = output.encoder.to(info().dtype);
  return output;
}

TrainableOutput TandemTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardOutput primary = run_primary(batch, dropout);
  const model::PrimaryStates states{.layers = std::move(primary.layers), .encoder = primary.encoder};
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  input.primary = &states;
  input.block = options_.block;
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
  writers.block = options_.block > 0 ? options_.block : secondary_.config().tandem.block;
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
  auto stored = model::load_tandem_secondary(directory, {}, options)->parameters();
  if (trains_primary()) {
    stored.merge(
        with_prefix(kPrimaryPrefix, model::load_model(model::tandem_primary(directory), options)->parameters()));
  }
  copy_parameters(stored, parameters_, directory.string());
}

}  // namespace draftsmith::train
