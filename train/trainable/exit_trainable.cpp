#include "train/trainable/exit_trainable.h"

#include <stdexcept>

#include "model/files/model_hash.h"
#include "model/files/new_directory.h"

namespace draftsmith::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExitsPrefix = "exits.";

void save_both(const fs::path& directory, const model::TransformerModel& model, model::Exits exits,
               const model::SaveOptions& options, bool bind) {
  const fs::path place = model::require_free_place(directory);
  model::write_new_directory(place, [&](const fs::path& temporary) {
    model::write_model_files(temporary, model, options);
    // The run and the result are named, which stay the same wherever a recipe is run.
    const fs::path name = place.parent_path().filename() / place.filename();
    exits.bind(name.string(), bind ? model::model_hash(temporary) : "");
    model::save_exits(model::exits_directory(temporary), exits);
  });
}

}  // namespace

std::vector<int64_t> layers_of(const model::Exits& exits) {
  std::vector<int64_t> layers;
  for (const model::ExitShape& exit : exits.config().exits) layers.push_back(exit.layer);
  return layers;
}

std::vector<Predictions> exit_predictions(const model::Exits& exits, const model::TransformerModel& model,
                                          const std::vector<at::Tensor>& layers, const Batch& batch) {
  std::vector<Predictions> predictions;
  for (const model::ExitShape& exit : exits.config().exits) {
    const at::Tensor read = at_labels(layers.at(predictions.size()), batch);  // [P,D]
    Predictions own{
        .model = &model, .hidden = exits.finish(model, exit.layer, read), .labels = batch.labels, .layer = exit.layer};
    if (exit.head != model::ExitHead::kShared) own.head = exits.head(model, exit.layer);
    predictions.push_back(std::move(own));
  }
  return predictions;
}

ExitTrainable::ExitTrainable(model::TransformerModel& model, model::Exits& exits, std::vector<double> weights)
    : model_(model),
      exits_(exits),
      weights_(std::move(weights)),
      layers_(layers_of(exits)),
      parameters_(model.parameters()) {
  if (weights_.size() != layers_.size() + 1) throw std::logic_error("a loss of each exit and of the last layer");
  parameters_.merge(with_prefix(kExitsPrefix, exits.parameters()));
}

TrainableOutput ExitTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  input.hidden_layers = layers_;
  const model::ForwardOutput pass = model_.forward(input, dropout);
  TrainableOutput output;
  output.predictions = {
      {.model = &model_, .hidden = at_labels(pass.hidden, batch), .labels = batch.labels, .weight = weights_.back()}};
  for (Predictions& exit : exit_predictions(exits_, model_, pass.layers, batch)) {
    exit.weight = weights_[output.predictions.size() - 1];
    output.predictions.push_back(std::move(exit));
  }
  return output;
}

void ExitTrainable::save(const fs::path& directory, const model::SaveOptions& options) const {
  save_both(directory, model_, exits_, options, false);
}

void ExitTrainable::save_result(const fs::path& directory, const model::SaveOptions& options) const {
  save_both(directory, model_, exits_, options, true);
}

void ExitTrainable::load(const fs::path& directory) {
  const auto stored = model::load_model(directory, {.device = info().device, .dtype = info().dtype, .pack = false});
  const auto exits = model::load_exits(model::exits_directory(directory), directory, *stored, false);
  auto parameters = stored->parameters();
  parameters.merge(with_prefix(kExitsPrefix, exits->parameters()));
  copy_parameters(parameters, parameters_, directory.string());
}

}  // namespace draftsmith::train
