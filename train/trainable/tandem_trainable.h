// Training of a Tandem (Nair et al. 2024, section 3): a secondary that reads its primary's representations, in one
// parallel pass with the block mask of γ. Three configurations: the primary frozen; both trained with the loss on the
// secondary's output; both trained with the sum of the losses on both outputs. The primary's predictions are offered as
// a teacher, so that Tandem-Distil costs no further pass.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/registry.h"
#include "model/kinds/tandem.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

enum class TandemConfiguration { kPrimaryFrozen, kBothSecondaryLoss, kBothBothLosses };

// Returns their names in recipes: "primary_frozen", "both_secondary_loss", "both_both_losses".
const NamedValues<TandemConfiguration>& tandem_configurations();

struct TandemTrainableOptions {
  TandemConfiguration configuration = TandemConfiguration::kPrimaryFrozen;
  int64_t block = 0;                             // γ of the passes; 0: the secondary's own
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

}  // namespace draftsmith::train
