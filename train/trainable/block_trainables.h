// Training of the decoder-only models that work in blocks of γ tokens (Nair et al. 2024, section 5): block prediction,
// and the deep Tandem.
#pragma once

#include "model/kinds/deep_tandem.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// A model of block prediction (model/kinds/block_prediction.h). Its loss and measures are over the labels that it
// predicts: those with a token γ places before them in the same text. The first γ tokens of a text without a prompt are
// not predicted.
class BlockPredictionTrainable : public TrainableModel {
 public:
  // The model is fp32 (fp64 in tests), unpacked and on the device to train on. It must outlive this object, and holds
  // the result.
  explicit BlockPredictionTrainable(model::TransformerModel& model);

  const model::ModelInfo& info() const override { return model_.info(); }
  double dropout() const override { return model_.config().dropout; }
  const std::map<std::string, at::Tensor>& parameters() const override { return model_.parameters(); }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 private:
  model::TransformerModel& model_;
};

// Both parts of a deep Tandem and the projection between them.
class DeepTandemTrainable : public TrainableModel {
 public:
  // The model as in BlockPredictionTrainable.
  explicit DeepTandemTrainable(model::DeepTandemModel& model);

  const model::ModelInfo& info() const override { return info_; }
  double dropout() const override { return model_.small().config().dropout; }
  const std::map<std::string, at::Tensor>& parameters() const override { return parameters_; }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 private:
  model::DeepTandemModel& model_;
  model::ModelInfo info_;  // the small part's, but texts must fit both
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace draftsmith::train
