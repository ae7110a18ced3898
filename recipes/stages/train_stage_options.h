// Options of train stages, and checks of them that need no file.
#pragma once

#include <filesystem>
#include <optional>

#include "base/options.h"
#include "recipes/architecture.h"
#include "recipes/stages/shared_encoder_training.h"
#include "recipes/stages/tandem_training.h"
#include "train/options.h"
#include "train/trainable/exit_options.h"

namespace draftsmith::recipes {

struct TrainStageOptions {
  std::filesystem::path corpus;
  std::filesystem::path tokenizer;
  std::optional<std::filesystem::path> continue_from;
  std::optional<std::filesystem::path> from;
  std::optional<ArchitectureOptions> architecture;
  std::optional<std::filesystem::path> validation_corpus;
  std::optional<std::filesystem::path> validation_references;
  std::optional<std::filesystem::path> teacher;
  std::optional<std::filesystem::path> teacher_logits;
  std::optional<train::ExitTrainingOptions> exits;
  std::optional<TandemTrainingOptions> tandem;
  std::optional<SharedEncoderTrainingOptions> shared_encoder;
  std::optional<DeepTandemTrainingOptions> deep_tandem;
  std::optional<int64_t> block_prediction;
  train::TrainOptions training;
  static Fields<TrainStageOptions> fields();
};

// Returns whether the stage's objective learns from a teacher's distributions.
bool distils(const TrainStageOptions& options);

}  // namespace draftsmith::recipes
