// Runs a recipe: does what is missing, skips what is finished, redoes what changed beside the old, goes on where a
// killed run stopped.
//
// A stage's directory is WORK/<stage>-<hash8>/, WORK/<stage> a link to the one in use. The hash covers the options that
// change the result, the stage kind's version and the hashes of its inputs; so a changed option gives a new directory,
// and nothing trained is ever overwritten.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "recipes/recipe.h"

namespace draftsmith::recipes {

struct PipelineOptions {
  std::filesystem::path work;  // where the stages' directories lie
  std::string until;           // last stage to run; empty: all
  bool fresh = false;          // redo every stage; what was there is kept under another name
  Execution execution;
};

// Where a stage of a finished run lies.
struct StageResult {
  std::string stage;
  std::filesystem::path directory;
  bool skipped = false;  // it was finished already
};

// Runs the recipe. Errors: UserError for an unknown --until stage, a missing input file or another run in the same work
// directory; RunError when a stage fails (what was finished stays); Interrupted after SIGINT or SIGTERM, while the
// caller holds a SignalWatch (base/signals.h).
std::vector<StageResult> run_recipe(const Recipe& recipe, const PipelineOptions& options);

// The hash that identifies a stage, given the hashes of its inputs.
std::string stage_hash(const RecipeStage& stage, const std::map<std::string, std::string>& input_hashes);

}  // namespace draftsmith::recipes
