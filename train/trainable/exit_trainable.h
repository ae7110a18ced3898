// Training of a whole model with losses at several of its layers: the sum of w_i L_i over its exits and its last layer
// (train/trainable/exit_options.h names the losses). The exits read hidden states that the model computes anyway, so
// they cost only their heads.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/kinds/exits.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

class ExitTrainable : public TrainableModel {
 public:
  // Both are fp32 (fp64 in tests), unpacked and on the device to train on. They must outlive this object, and hold the
  // result. `weights`: one for each exit, then the last layer's.
  ExitTrainable(model::TransformerModel& model, model::Exits& exits, std::vector<double> weights);

  const model::ModelInfo& info() const override { return model_.info(); }
  double dropout() const override { return model_.config().dropout; }
  // Returns the model's parameters under their own names, and the exits' with "exits." before them.
  const std::map<std::string, at::Tensor>& parameters() const override { return parameters_; }
  // Returns the last layer's predictions first, then the exits' by rising layers. T5's dropout after the final norm
  // applies to the last layer alone.
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  // Writes an ordinary model directory with the exits inside, not bound to it.
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  // Like save(), with the exits bound to the model by its hash.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;
  // Decodes with the whole model.
  bool decodes() const override { return true; }
  std::unique_ptr<model::TransformerModel> decoding_copy() const override { return packed_copy(model_); }
  bool writes_text() const override { return true; }

 private:
  model::TransformerModel& model_;
  model::Exits& exits_;
  std::vector<double> weights_;
  std::vector<int64_t> layers_;  // of the exits
  std::map<std::string, at::Tensor> parameters_;
};

// Returns the exits' predictions at a batch's labels. `layers`: the hidden states [B,T,D] of the exits' layers, in
// their order.
std::vector<Predictions> exit_predictions(const model::Exits& exits, const model::TransformerModel& model,
                                          const std::vector<at::Tensor>& layers, const Batch& batch);

// Returns the layers that exits read, in their order.
std::vector<int64_t> layers_of(const model::Exits& exits);

}  // namespace draftsmith::train
