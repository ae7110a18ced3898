// Training of drafters that read another model, and of models that work in blocks (Nair et al. 2024): Tandem
// secondaries, drafters that share their target's encoder, block prediction and deep Tandems.
#pragma once

#include <filesystem>
#include <string>

#include "base/registry.h"
#include "model/models/deep_tandem.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// ---- Tandem secondaries
// A secondary reads its primary's representations in one parallel pass with the block mask of γ (section 3). Three
// configurations: the primary frozen; both trained with the loss on the secondary's output; both trained with the sum
// of the losses on both outputs. The primary's predictions are offered as a teacher, so that Tandem-Distil costs no
// further pass.

enum class TandemConfiguration { kPrimaryFrozen, kBothSecondaryLoss, kBothBothLosses };

// Returns their names in recipes: "primary_frozen", "both_secondary_loss", "both_both_losses".
const NamedValues<TandemConfiguration>& tandem_configurations();

struct TandemTrainableOptions {
  TandemConfiguration configuration = TandemConfiguration::kPrimaryFrozen;
  std::filesystem::path primary_directory = {};  // of a frozen primary: what the result refers to
  bool copy_primary = false;  // a frozen primary is copied into the result; else it is named by path and hash
};

class TandemTrainable : public TrainableModel {
 public:
  // Takes an unpacked Tandem secondary, and a primary that fits it: unpacked if it is trained, of any type if it is
  // frozen. Both are on the device to train on; they must outlive this object and hold the result. Errors: UserError
  // (model::require_tandem_pair).
  TandemTrainable(model::TransformerModel& secondary, model::TransformerModel& primary, TandemTrainableOptions options);

  // Returns the secondary's info with the shorter of both contexts: texts must fit both models.
  const model::ModelInfo& info() const override { return info_; }
  double dropout() const override { return secondary_.config().dropout; }
  // Returns the secondary's parameters under their own names, and a trained primary's with "primary." before them.
  const std::map<std::string, at::Tensor>& parameters() const override { return parameters_; }
  // Returns the secondary's predictions first.
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  bool teaches() const override { return true; }
  bool writes_text() const override { return true; }
  bool has_target() const override { return true; }
  // Returns the Tandem decoding alone: the secondary writes, and the primary reads its blocks.
  TextWriters text_writers() const override;
  // Writes a Tandem directory with a trained primary's weights inside; a frozen primary is not named.
  void save(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  // Like save(), with the primary named by its hash, and a frozen one by its path or copied, so that the directory
  // decodes.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;
  void load(const std::filesystem::path& directory) override;

 private:
  bool trains_primary() const { return options_.configuration != TandemConfiguration::kPrimaryFrozen; }
  model::ForwardOutput run_primary(const Batch& batch, const model::DropoutContext& dropout);

  model::TransformerModel& secondary_;
  model::TransformerModel& primary_;
  TandemTrainableOptions options_;
  model::ModelInfo info_;
  std::map<std::string, at::Tensor> parameters_;
};

// ---- Drafters that share their target's encoder
// See model/models/shared_encoder.h. The target is frozen: a pass runs its encoder alone or, to learn from it, the
// whole target, whose predictions are then offered as a teacher.

struct SharedEncoderOptions {
  std::filesystem::path target_directory = {};  // what the result refers to
  bool teaches = false;                         // forward() offers the target's predictions
};

class SharedEncoderTrainable : public OneModelTrainable {
 public:
  // Takes an unpacked drafter, and a target of any type that fits it. Both are on the device to train on; they must
  // outlive this object, and the drafter holds the result. Errors: UserError (model::require_shared_encoder_pair).
  SharedEncoderTrainable(model::TransformerModel& drafter, model::TransformerModel& target,
                         SharedEncoderOptions options);

  // Returns the drafter's info without ids that the target lacks, and with the shorter of both contexts: both models
  // read a batch.
  const model::ModelInfo& info() const override { return info_; }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  bool teaches() const override { return options_.teaches; }
  bool writes_text() const override { return true; }
  bool has_target() const override { return true; }
  TextWriters text_writers() const override;
  // Like save(), which does not name the target, with it named by path and hash, so that the directory drafts for no
  // other model.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;

 private:
  // Returns the target's encoder states [B,S,D_L], and adds its predictions if it teaches.
  at::Tensor read_target(const Batch& batch, TrainableOutput& output);

  model::TransformerModel& target_;
  SharedEncoderOptions options_;
  model::ModelInfo info_;
};

// ---- Decoder-only models that work in blocks of γ tokens
// Block prediction, and the deep Tandem (Nair et al. 2024, section 5).

// A model of block prediction (model/models/block_models.h). Its loss and measures are over the labels that it
// predicts: those with a token γ places before them in the same text. The first γ tokens of a text without a prompt are
// not predicted.
class BlockPredictionTrainable : public OneModelTrainable {
 public:
  explicit BlockPredictionTrainable(model::TransformerModel& model);
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
};

// Both parts of a deep Tandem and the projection between them.
class DeepTandemTrainable : public TrainableModel {
 public:
  // The model as in OneModelTrainable.
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
