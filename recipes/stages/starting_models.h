// Start of a train stage: models of random weights (`architecture`) or loaded ones (`from`), those that stay
// frozen beside them, and the trainable model over them all. Tables `exits`, `tandem`, `features`, `deep_tandem`,
// `shared_encoder`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "base/error.h"
#include "base/options.h"
#include "data/tokenizers/tokenizer.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/transformer/transformer_model.h"
#include "train/trainable/exit_trainables.h"
#include "train/trainable/trainable_features.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::recipes {

// Shape of a model of random weights.
struct ArchitectureOptions {
  std::string family = "t5";
  int64_t width = 256;
  int64_t heads = 4;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_width = 64;
  int64_t ff_width = 1024;
  int64_t encoder_layers = 4;
  int64_t decoder_layers = 4;
  std::optional<std::string> activation;
  bool gated = false;
  bool tied_head = true;
  int64_t max_positions = 1024;
  double dropout = 0.1;
  std::optional<double> embedding_std;
  uint64_t seed = 1;
  static Fields<ArchitectureOptions> fields();
};

// Returns the configuration of a new model for texts of a tokenizer; `options` must be valid.
model::TransformerConfig make_config(const ArchitectureOptions& options, const data::Tokenizer& tokenizer);

struct TandemTrainingOptions {
  std::optional<std::filesystem::path> primary;
  std::vector<int64_t> layer_map;
  std::optional<int64_t> block;
  std::optional<std::string> projections;
  uint64_t seed = 1;
  std::string configuration = "primary_frozen";
  bool copy_primary = false;
  static Fields<TandemTrainingOptions> fields();
};

struct DeepTandemTrainingOptions {
  std::optional<ArchitectureOptions> large;  // present in valid options
  int64_t block = 2;
  static Fields<DeepTandemTrainingOptions> fields();
};

// A drafter without an encoder learns to read its target's.
struct SharedEncoderTrainingOptions {
  std::optional<std::filesystem::path> target;
  std::optional<std::string> projection;
  uint64_t seed = 1;
  static Fields<SharedEncoderTrainingOptions> fields();
};

// A drafter of one or two layers learns to read its target's hidden states.
struct FeatureTrainingOptions {
  std::optional<std::filesystem::path> target;
  std::optional<int64_t> decoder_layers;
  std::vector<int64_t> layers;
  std::optional<std::filesystem::path> vocabulary_from;
  std::optional<int64_t> vocabulary_size;
  std::optional<int64_t> unrolled;
  bool block = false;
  std::optional<int64_t> markov_rank;
  double decay = 0.8;
  std::optional<std::string> start;
  std::optional<uint64_t> seed;
  static Fields<FeatureTrainingOptions> fields();
};

struct StartOptions {
  std::optional<std::filesystem::path> from;
  std::optional<ArchitectureOptions> architecture;
  std::optional<train::ExitTrainingOptions> exits;
  std::optional<TandemTrainingOptions> tandem;
  std::optional<SharedEncoderTrainingOptions> shared_encoder;
  std::optional<FeatureTrainingOptions> features;
  std::optional<DeepTandemTrainingOptions> deep_tandem;
  std::optional<int64_t> block_prediction;
  static Fields<StartOptions> fields();
};

// Returns the problem that `option` names no model, which is needed as `what` says.
Problem missing_model(const std::string& option, const std::string& what);

// A trainable model, and the models that it works on: of a Tandem the secondary and the primary, of a drafter with a
// shared encoder, or of features, the drafter and the target.
struct StartingModels {
  std::vector<std::unique_ptr<model::TransformerModel>> models = {};
  std::unique_ptr<model::DeepTandemModel> deep = nullptr;
  std::unique_ptr<model::Exits> exits = nullptr;
  std::unique_ptr<train::TrainableModel> trainable = nullptr;
};

// Where models run. A frozen model has a type of its own, since it is not updated, and is packed unless products are in
// bf16: on a GPU its plain head is needed, whose logits are not rounded, and on a CPU products of pairs are faster.
struct ModelPlace {
  at::Device device = at::kCPU;
  at::ScalarType frozen = at::kFloat;
  bool packs = true;
};
ModelPlace place_of_training(const std::string& precision, at::Device device);

// Makes or loads the models. A drafter with a shared encoder learns from its target if that `teaches`. Norms of exits
// start from those of the same layers in `from`. A features drafter reads stored `states`, if there are any. Errors:
// UserError for directories that are incomplete, models that do not fit each other (naming both), layers outside a
// model, options of what `from` has already, and stored states of another model or of other layers.
StartingModels starting_models(const StartOptions& options, const data::Tokenizer& tokenizer, const ModelPlace& place,
                               bool teaches, const train::StoredStates& states = {});

// Returns whether `model` is the frozen primary, the target of a features drafter, or a copy of it, so that it need not
// be loaded again as a teacher.
bool is_frozen_primary(const StartOptions& options, const std::filesystem::path& model);

// Returns whether `model` is the one whose encoder the drafter shares, or a copy of it.
bool is_shared_target(const StartOptions& options, const std::filesystem::path& model);

}  // namespace draftsmith::recipes
