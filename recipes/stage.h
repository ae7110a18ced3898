// Stage of a recipe: its options, its work and its identity; the kinds of stages, which stage.cpp lists.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/options.h"
#include "base/registry.h"
#include "distributed/process_group.h"

namespace draftsmith::evaluate {
struct SuiteOptions;  // evaluate/suite/suite_options.h
}

namespace draftsmith::recipes {

// How a recipe runs.
struct Execution : ExecutionOptions {
  ProcessGroup* world = &ProcessGroup::single();  // processes that run the recipe together

  // Replaces a suite's device and threads by those that flags name.
  void apply_to(evaluate::SuiteOptions& suite) const;
};

struct StageContext {
  std::filesystem::path directory;  // the stage's directory; it exists and keeps the files of an interrupted run
  std::string identity;             // the stage's hash
  Execution execution{};
  nlohmann::ordered_json options{};             // resolved, with references as in the recipe; null outside of recipes
  std::map<std::string, std::string> inputs{};  // input stage ("@name") or file -> its hash
};

// Options of a stage, parsed without errors.
struct CheckedOptions {
  nlohmann::ordered_json options;            // resolved options that change the result
  nlohmann::json identity;                   // the given ones of them, which enter the stage's hash
  std::vector<std::filesystem::path> paths;  // inputs of the stage, with unresolved references
};

// Which processes run a stage: rank 0 while the others wait, all together, or a process that must be alone.
enum class Processes { kLeader, kAll, kOne };

// Kind of stages (kind = "train"): its options, and the function that runs a stage. Immutable.
struct StageKind {
  std::string name;
  // Increment it if the same options give another result, as after a changed default: that redoes stages.
  int64_t version = 1;
  // Returns the text of the options for `draftsmith help options`.
  std::function<std::string()> describe_options;
  // Parses a stage's table and adds every error.
  std::function<CheckedOptions(const toml::table& table, const std::string& stage, Problems& problems)> check;
  Processes processes = Processes::kLeader;
  // Runs a stage, whose table has paths in place of references. Must continue the work of an interrupted run. Throws
  // Interrupted if a stop is requested.
  std::function<void(const toml::table& table, const StageContext& run)> run;
};

// Returns a kind with the options struct Options, whose stages run `run_stage(options, run)`.
template <class Options>
StageKind make_stage_kind(std::string name, int64_t version, void (*run_stage)(const Options&, const StageContext&),
                          Processes processes = Processes::kLeader) {
  return {.name = name,
          .version = version,
          .describe_options = [] { return draftsmith::describe_options<Options>(); },
          .check =
              [](const toml::table& table, const std::string& stage, Problems& problems) {
                const auto options = parse_options<Options>(table, stage, problems);
                return CheckedOptions{options_to_json(options, true), options_identity(options), option_paths(options)};
              },
          .processes = processes,
          .run =
              [run_stage, name](const toml::table& table, const StageContext& run) {
                Problems problems;
                const auto options = parse_options<Options>(table, name, problems);
                problems.throw_if_any();
                run_stage(options, run);
              }};
}

// The kinds of each file, and what their stages make.
std::vector<StageKind> data_stages();     // "language": text; "tokenizer": spiece.model; "corpus", "ngram": NAME.h5
std::vector<StageKind> train_stages();    // "train" and "heads": model/
std::vector<StageKind> prune_stages();    // "prune": model/
std::vector<StageKind> teacher_stages();  // "teacher-outputs": corpus.h5; "teacher-logits": teacher_logits.h5
std::vector<StageKind> starter_stages();  // "prompts": train.jsonl, held_out.txt; "verdict": verdict.txt, export/
std::vector<StageKind> router_stages();   // "router-data": router_data.h5; "router": router/, router_report.json

// Returns all kinds of stages.
const Registry<StageKind>& stage_kinds();

}  // namespace draftsmith::recipes
