// Training of a whole model with losses at several of its layers: the sum of w_i L_i over its exits and its last layer
// (train/trainable models/exit_options.h names the losses). The exits read what the model computes anyway, so they cost
// only their heads.
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
  // fp32 (fp64 in tests) and unpacked, both on the device to train on; they must outlive the trainable, and hold the
  // result. `weights`: one for each exit, then the last layer's.
  ExitTrainable(model::TransformerModel& model, model::Exits& exits, std::vector<double> weights);

  const model::ModelInfo& info() const override { return model_.info(); }
  double dropout() const override { return model_.config().dropout; }
  // The model's under their own names; the exits' with "exits." before them.
  const std::map<std::string, at::Tensor>& parameters() const override { return parameters_; }
  // The last layer's predictions first, then the exits' by rising layers. T5's dropout after the final norm is the last
  // layer's alone.
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  // An ordinary model directory with the exits inside, not bound to it.
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  // The same, with the exits bound to the model by its hash.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;
  // The whole model.
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

// What exits predict at a batch's labels. `layers`: the hidden states [B,T,D] of the exits' layers, in their order.
std::vector<Predictions> exit_predictions(const model::Exits& exits, const model::TransformerModel& model,
                                          const std::vector<at::Tensor>& layers, const Batch& batch);

// The layers that exits read, in their order.
std::vector<int64_t> layers_of(const model::Exits& exits);

}  // namespace draftsmith::train
