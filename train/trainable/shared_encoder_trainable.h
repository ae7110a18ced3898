// Training of a drafter that shares its target's encoder (model/kinds/shared_encoder.h). The target is frozen: a pass
// runs its encoder alone or, to learn from it, the whole target, whose predictions are then offered as a teacher.
#pragma once

#include <filesystem>

#include "model/kinds/shared_encoder.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct SharedEncoderOptions {
  std::filesystem::path target_directory = {};  // what the result refers to
  bool teaches = false;                         // forward() offers the target's predictions
};

class SharedEncoderTrainable : public TrainableModel {
 public:
  // Takes an unpacked drafter, and a target of any type that fits it. Both are on the device to train on; they must
  // outlive this object, and the drafter holds the result. Errors: UserError (model::require_shared_encoder_pair).
  SharedEncoderTrainable(model::TransformerModel& drafter, model::TransformerModel& target,
                         SharedEncoderOptions options);

  // Returns the drafter's info without ids that the target lacks, and with the shorter of both contexts: both models
  // read a batch.
  const model::ModelInfo& info() const override { return info_; }
  double dropout() const override { return drafter_.config().dropout; }
  // Returns the drafter's parameters alone.
  const std::map<std::string, at::Tensor>& parameters() const override { return drafter_.parameters(); }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  bool teaches() const override { return options_.teaches; }
  bool writes_text() const override { return true; }
  bool decodes() const override { return true; }
  bool has_target() const override { return true; }
  TextWriters text_writers() const override;
  // Writes the drafter's directory; the target is not named.
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  // Like save(), with the target named by path and hash, so that the directory drafts for no other model.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 private:
  // Returns the target's encoder states [B,S,D_L], and adds its predictions if it teaches.
  at::Tensor read_target(const Batch& batch, TrainableOutput& output);

  model::TransformerModel& drafter_;
  model::TransformerModel& target_;
  SharedEncoderOptions options_;
  model::ModelInfo info_;
};

}  // namespace draftsmith::train
