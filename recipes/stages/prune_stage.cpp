// kind = "prune": cuts a smaller model out of a trained one. Makes model/, for a train stage's `from` or a drafter.

#include "base/device.h"
#include "base/logging.h"
#include "recipes/pruning.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

struct PruneStageOptions : model::PruneOptions {
  std::filesystem::path model;

  static Fields<PruneStageOptions> fields() {
    return Fields<PruneStageOptions>("prune stage (kind = \"prune\"): makes model/")
        .add("model", &PruneStageOptions::model, Required{}, "Model directory to cut the new model from.")
        .inherit<model::PruneOptions>();
  }
};

// Starts from the beginning after an interruption, since pruning takes little time; removes files of a killed run.
void run_prune(const PruneStageOptions& options, const StageContext& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run.directory)) {
    const std::string name = entry.path().filename();
    if (name == "model" || name.starts_with(".model")) std::filesystem::remove_all(entry.path());
  }
  const PruneReport report =
      prune_directory(options.model, run.directory / "model", options, choose_device(run.execution.device));
  log_info("  {}", report.text());
}

}  // namespace

StageKind prune_stage() {
  return make_stage_kind<PruneStageOptions>("prune", 1, "cuts a smaller model out of a trained one", run_prune);
}

}  // namespace draftsmith::recipes
