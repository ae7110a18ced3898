// Training of exits (model/models/exits.h): with their whole model by losses at several layers (BiLD's early exit, Kim
// et al. 2023, section 4.4; CALM, Schuster et al. 2022), or as heads of a frozen model (the early-prediction heads of
// PPD, Yang et al. 2024, section 5 and table 4). Their options, and a trainable model of each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/models/exits.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// Losses at several layers of a model that is trained with them: sum of w_i L_i, the last layer included.
struct ExitTrainingOptions {
  std::string loss = "early_exit_average";
  std::vector<int64_t> layers = {};  // below the last; rising
  std::vector<double> weights = {};  // of `weighted`: one for each of `layers`, then the last layer's
  bool own_norms = false;
  static Fields<ExitTrainingOptions> fields();
};

// Heads of a frozen model.
struct HeadOptions {
  std::vector<int64_t> layers = {};  // below the last; rising
  std::string form = "full";         // or "low_rank"
  std::optional<int64_t> rank = {};  // of low_rank, which needs it
  bool own_norms = false;
  uint64_t seed = 1;
  static Fields<HeadOptions> fields();
};

// Adds a problem at `where` for layers that do not rise, a layer that is given twice, and one that is not below the
// last of `decoder_layers` (0: not known yet).
void check_early_layers(const std::vector<int64_t>& layers, int64_t decoder_layers, const std::string& where,
                        Problems& problems);
// Adds problems of options that are valid by themselves but do not fit a model with so many layers.
void check_fits(const ExitTrainingOptions& options, int64_t decoder_layers, const std::string& where,
                Problems& problems);

// Returns the exits that valid options describe in a model of `decoder_layers` layers.
model::ExitConfig exit_config(const ExitTrainingOptions& options, int64_t decoder_layers);
model::ExitConfig exit_config(const HeadOptions& options);

// Returns the weights of the losses, one for each exit and then the last layer's: 1/2 and 1/2 (early_exit_average), i /
// sum of j over all N layers (calm_weighted), or the given ones unchanged (weighted).
std::vector<double> loss_weights(const ExitTrainingOptions& options, int64_t decoder_layers);

// ---- A whole model with losses at several of its layers
// The loss is the sum of w_i L_i over its exits and its last layer (loss_weights()). The exits read hidden states that
// the model computes anyway, so they cost only their heads.

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
  bool writes_text() const override { return true; }
  TextWriters text_writers() const override { return {packed_copy(model_)}; }

 private:
  model::TransformerModel& model_;
  model::Exits& exits_;
  std::vector<double> weights_;
  std::vector<int64_t> layers_;  // of the exits
  std::map<std::string, at::Tensor> parameters_;
};

// ---- Early-prediction heads
// PPD, Yang et al. 2024, section 5 and appendix A: one head for each chosen layer of a frozen model, all in one pass of
// it. The pass runs all layers, and the last one is offered as the heads' teacher, so that distilling the model into
// its heads costs no further pass.

// The directory of the frozen model, for the result.
struct HeadsBase {
  std::filesystem::path directory = {};
  std::string name = {};  // what exits.json calls it; empty: its path
};

class HeadTrainable : public TrainableModel {
 public:
  // Both are fp32 (fp64 in tests), unpacked and on the device to train on; no exit shares the model's head. They must
  // outlive this object; `heads` holds the result. Without a base there is no save_result().
  HeadTrainable(model::TransformerModel& model, model::Exits& heads, HeadsBase base = {});

  const model::ModelInfo& info() const override { return model_.info(); }
  // The frozen model has no dropout.
  double dropout() const override { return 0; }
  // Returns the heads' parameters alone.
  const std::map<std::string, at::Tensor>& parameters() const override { return heads_.parameters(); }
  // Returns the heads' predictions by rising layers, and the last layer's as their teacher.
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  bool measures_all() const override { return true; }
  bool teaches() const override { return true; }
  // Writes a directory of exits (model/models/exits.h), not bound to a model.
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  // Writes a copy of the base (model::copy_model) with the heads inside, in place of exits that it may have, bound to
  // it by its hash.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 private:
  model::TransformerModel& model_;
  model::Exits& heads_;
  HeadsBase base_;
  std::vector<int64_t> layers_;
};

}  // namespace draftsmith::train
