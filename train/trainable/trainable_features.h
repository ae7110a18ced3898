// Training of features drafters (model/models/feature_drafter.h). The target is frozen: one pass of it, or a cache,
// gives the states that the drafter reads and, as its teacher, the distributions to learn. The drafter's pass is
// unrolled (EAGLE-3's training-time test): from its second step on it reads its own outputs, as it does in a draft.
#pragma once

#include <filesystem>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/teacher/teacher_cache.h"
#include "model/transformer/transformer_model.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// A target's stored states at the tokens of a corpus, which must outlive this. Other batches need passes of the target.
struct StoredStates {
  std::optional<data::TeacherCache> cache = {};
  const data::Corpus* corpus = nullptr;
};

struct FeatureTrainableOptions {
  std::filesystem::path target_directory = {};  // what the result refers to
  double decay = 0.8;        // weight of each step's loss, relative to that of the step before; the weights' sum is 1
  StoredStates states = {};  // of all layers that the drafter reads
};

class FeatureTrainable : public OneModelTrainable {
 public:
  // Takes an unpacked drafter that has borrowed from the target, which has parameters(). Both are on the device to
  // train on; they must outlive this object, and the drafter holds the result. Errors: UserError
  // (model::require_feature_pair).
  FeatureTrainable(model::TransformerModel& drafter, model::TransformerModel& target, FeatureTrainableOptions options);

  // Returns each step's predictions, the first step's first. Stored states give a teacher if the last layer is stored.
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;
  bool teaches() const override { return true; }
  // Like save(), which does not name the target, with it named by path and hash.
  void save_result(const std::filesystem::path& directory, const model::SaveOptions& options) const override;

 private:
  // Returns the target's states of the layers that the drafter reads; `hidden`: what its head reads, if known.
  model::ForwardOutput target_states(const Batch& batch);

  model::TransformerModel& target_;
  FeatureTrainableOptions options_;
};

}  // namespace draftsmith::train
