#include "train/trainable/block_trainables.h"

#include <stdexcept>

#include "base/device_tensors.h"
#include "model/kinds/block_prediction.h"

namespace draftsmith::train {

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

BlockPredictionTrainable::BlockPredictionTrainable(model::TransformerModel& model) : model_(model) {
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

void BlockPredictionTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_model(directory, model_, options);
}

void BlockPredictionTrainable::load(const std::filesystem::path& directory) {
  const auto stored =
      model::load_block_prediction(directory, {.device = info().device, .dtype = info().dtype, .pack = false});
  copy_parameters(stored->parameters(), model_.parameters(), directory.string());
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
