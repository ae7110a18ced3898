// Runs a recipe: skips finished stages, redoes changed ones beside the old, and continues where a killed run stopped.
// A stage's directory is WORK/<stage>-<hash8>/; the link WORK/<stage> leads to the one in use. The hash covers the
// options that change the result, the version of the stage kind and the hashes of the inputs.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "recipes/recipe.h"

namespace draftsmith::recipes {

// DONE, the last file that a stage writes: its identity and all files of the finished directory.
struct Done {
  std::string stage{};
  std::string kind{};
  int64_t version = 0;
  std::string hash{};                           // identity of the stage: options, version, inputs
  nlohmann::ordered_json options{};             // resolved options
  std::map<std::string, std::string> inputs{};  // input stage or file -> its hash
  std::map<std::string, std::string> files{};   // file of the directory -> SHA-256 of its content
  std::string finished{};                       // UTC, ISO 8601
  double seconds = 0.0;                         // duration of the run that finished the stage
};

// Returns where a stage of that identity (Done::hash) is in a work directory.
std::filesystem::path stage_directory(const std::filesystem::path& work, const std::string& name,
                                      const std::string& id);
// Hashes the directory's files and writes DONE by atomic rename.
void write_done(const std::filesystem::path& directory, Done done);
// Reads the directory's DONE; nothing if there is none. Errors: UserError if the file is damaged.
std::optional<Done> read_done(const std::filesystem::path& directory);
// Compares a part of a directory, a file or a folder of it, with its DONE. Returns one problem for each missing,
// changed or added file there.
std::vector<Problem> verify_done(const std::filesystem::path& directory, const Done& done,
                                 const std::filesystem::path& part);

struct PipelineOptions {
  std::filesystem::path work;  // directory of the stages' directories; empty: work/<name of the recipe>
  std::string until;           // last stage to run; empty: all
  bool fresh = false;          // redo every stage and keep the recipe's old directories under other names
  Execution execution;
};

struct StageResult {
  std::string stage;
  std::filesystem::path directory;
  bool skipped = false;  // whether it was finished before the run
};

// Runs the recipe, with all processes of execution.world together; they share the work directory, which the leader
// alone writes but for shards. Errors: UserError for an unknown --until stage, a missing input file, another run in the
// same work directory, or processes with other recipes, inputs or work directories; RunError if a stage fails (finished
// stages stay); Interrupted after SIGINT or SIGTERM, if the caller holds a SignalWatch (base/signals.h).
std::vector<StageResult> run_recipe(const Recipe& recipe, PipelineOptions options);

// Returns the hash that identifies a stage, given the hashes of its inputs.
std::string stage_hash(const RecipeStage& stage, const std::map<std::string, std::string>& input_hashes);

}  // namespace draftsmith::recipes
