// A stage of a recipe: what it reads, makes and is identified by. Kinds of stages are listed in stage_kinds.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/registry.h"

namespace draftsmith::recipes {

// Settings of a run that change no result, so that none of them enters a stage's hash.
struct Execution {
  std::string device = "auto";
  int64_t threads = 0;  // 0: LibTorch's choice
  ProgressStyle progress = ProgressStyle::kLines;
};

// The context of a running stage.
struct StageContext {
  std::filesystem::path directory;  // the stage's own; exists, and keeps what an interrupted run left in it
  std::string identity;             // the stage's hash
  Execution execution{};
  nlohmann::ordered_json options{};  // resolved; references as the author wrote them; null: not run by a recipe
  std::map<std::string, std::string> inputs{};  // input stage ("@name") or file -> its hash
};

// A stage's table, read and found to be without errors.
struct CheckedOptions {
  nlohmann::ordered_json options;            // resolved, those that change the result
  nlohmann::ordered_json identity;           // of these, what was given: enters the stage's hash
  std::vector<std::filesystem::path> paths;  // what the stage reads, as written: references are not resolved
};

// One kind of stage (kind = "train"): its options, and the function that runs it. Immutable.
struct StageKind {
  std::string name;
  // Raised when the same options come to give another result, a changed default included: finished stages are redone.
  int64_t version = 1;
  std::string summary;
  // Text of the options for `draftsmith help options`.
  std::function<std::string()> describe_options;
  // Checks a stage's table and adds every error.
  std::function<CheckedOptions(const toml::table& table, const std::string& stage, Problems& problems)> check;
  // Runs with references already replaced by paths. Must continue from what an earlier, interrupted run left behind.
  // Stops early by throwing Interrupted.
  std::function<void(const toml::table& table, const StageContext& run)> run;
};

// The kind whose options are the struct Options and whose work is `run_stage(options, run)`.
template <class Options>
StageKind make_stage_kind(std::string name, int64_t version, const std::string& summary,
                          void (*run_stage)(const Options&, const StageContext&)) {
  const auto parse = [](const toml::table& table, const std::string& stage, Problems& problems) {
    return parse_options<Options>(table, stage, problems);
  };
  return {.name = name,
          .version = version,
          .summary = summary,
          .describe_options = [] { return draftsmith::describe_options<Options>(); },
          .check =
              [parse](const toml::table& table, const std::string& stage, Problems& problems) {
                const Options options = parse(table, stage, problems);
                return CheckedOptions{options_to_json(options, true), options_identity(options), option_paths(options)};
              },
          .run =
              [parse, run_stage, name](const toml::table& table, const StageContext& run) {
                Problems problems;
                const Options options = parse(table, name, problems);
                problems.throw_if_any();
                run_stage(options, run);
              }};
}

// Returns all kinds of stages.
const Registry<StageKind>& stage_kinds();

}  // namespace draftsmith::recipes
