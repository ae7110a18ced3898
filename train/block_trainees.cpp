#include "train/block_trainees.h"

#include <stdexcept>

#include "model/block_prediction.h"

namespace draftsmith::train {

BlockPredictionTrainee::BlockPredictionTrainee(model::TransformerModel& model) : model_(model) {
  if (model.config().block_attention < 1) throw std::logic_error("the model predicts no blocks");
}

TraineeOutput BlockPredictionTrainee::forward(const Batch& batch, const model::DropoutContext& dropout) {
  model::ForwardInput input;
  input.target = batch.decoder_input;
  const at::Tensor hidden = model_.forward(input, dropout).hidden;  // [B,T,D]
  // The label at a position is the token after it, which is predicted γ tokens before that token.
  const int64_t distance = 1 - model_.config().block_attention;
  const at::Tensor moved = model::shifted(hidden, batch.decoder_input, distance, 0);
  const at::Tensor every = at::ones_like(batch.decoder_input.tokens, at::kBool).unsqueeze(2);  // [B,T,1]
  const at::Tensor predicted = at_labels(model::shifted(every, batch.decoder_input, distance, 0), batch);
  const at::Tensor kept = predicted.squeeze(1).nonzero().squeeze(1);  // [Q]
  return {.predictions = {{.model = &model_,
                           .hidden = at_labels(moved, batch).index_select(0, kept),
                           .labels = batch.labels.index_select(0, kept)}}};
}

void BlockPredictionTrainee::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_model(directory, model_, options);
}

void BlockPredictionTrainee::load(const std::filesystem::path& directory) {
  const auto stored =
      model::load_block_prediction(directory, {.device = info().device, .dtype = info().dtype, .pack = false});
  copy_parameters(stored->parameters(), model_.parameters(), directory.string());
}

DeepTandemTrainee::DeepTandemTrainee(model::DeepTandemModel& model) : model_(model), parameters_(model.parameters()) {}

TraineeOutput DeepTandemTrainee::forward(const Batch& batch, const model::DropoutContext& dropout) {
  const at::Tensor hidden = model_.forward(batch.decoder_input, dropout);  // [B,T,D_S]
  return {.predictions = {{.model = &model_.small(), .hidden = at_labels(hidden, batch), .labels = batch.labels}}};
}

void DeepTandemTrainee::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_deep_tandem(directory, model_, options);
}

void DeepTandemTrainee::load(const std::filesystem::path& directory) {
  const auto stored = model::load_deep_tandem(directory, info().device, info().dtype);
  copy_parameters(stored->parameters(), parameters_, directory.string());
}

}  // namespace draftsmith::train
