// Runs a recipe: skips finished stages, redoes changed ones beside the old, and continues where a killed run stopped.
//
// A stage's directory is WORK/<stage>-<hash8>/; the link WORK/<stage> leads to the one in use. The hash covers the
// options that change the result, the version of the stage kind and the hashes of the inputs. So a changed option gives
// a new directory, and no trained model is ever overwritten.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "recipes/recipe.h"

namespace draftsmith::recipes {

struct PipelineOptions {
  std::filesystem::path work;  // directory of the stages' directories
  std::string until;           // last stage to run; empty: all
  bool fresh = false;          // redo every stage and keep old directories under other names
  Execution execution;
};

// Stage of a finished run.
struct StageResult {
  std::string stage;
  std::filesystem::path directory;
  bool skipped = false;  // whether it was finished before the run
};

// Runs the recipe, with all processes of execution.world together; they share the work directory, which the leader
// alone writes but for shards. Errors: UserError for an unknown --until stage, a missing input file, another run in the
// same work directory, or processes with other recipes, inputs or work directories; RunError if a stage fails (finished
// stages stay); Interrupted after SIGINT or SIGTERM, if the caller holds a SignalWatch (base/signals.h).
std::vector<StageResult> run_recipe(const Recipe& recipe, const PipelineOptions& options);

// Returns the hash that identifies a stage, given the hashes of its inputs.
std::string stage_hash(const RecipeStage& stage, const std::map<std::string, std::string>& input_hashes);

}  // namespace draftsmith::recipes
