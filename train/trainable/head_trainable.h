// Training of early-prediction heads (PPD, Yang et al. 2024, section 5 and appendix A): one head for each chosen layer
// of a frozen model, all in one pass of it. The pass runs all layers, and the last one is offered as the heads'
// teacher, so that distilling the model into its heads costs no further pass.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/kinds/exits.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// The directory of the frozen model, for the result.
struct HeadsBase {
  std::filesystem::path directory = {};
  std::string name = {};  // what exits.json calls it; empty: its path
  std::string hash = {};  // model_hash() when it was loaded; empty: not compared
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
  // Writes a directory of exits (model/kinds/exits.h), not bound to a model.
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  // Writes a copy of the base (model::copy_model) with the heads inside, in place of exits that it may have, bound to
  // it by its hash. Errors: RunError if the base has changed.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 private:
  std::string unchanged_hash(const std::filesystem::path& copy) const;

  model::TransformerModel& model_;
  model::Exits& heads_;
  HeadsBase base_;
  std::vector<int64_t> layers_;
};

}  // namespace draftsmith::train
