// `draftsmith train` and `draftsmith validate`: run a recipe; report every error of recipes and suites at once.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/child_process.h"
#include "base/device.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/toml.h"
#include "cli/application.h"
#include "distributed/process_group.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/report.h"
#include "evaluate/suite/suite_options.h"
#include "recipes/pipeline.h"
#include "recipes/recipe.h"
#include "recipes/stage.h"

namespace draftsmith::cli {
namespace {

struct TrainFlags {
  recipes::Execution execution;
  std::vector<std::string> set;  // --set KEY=VALUE, in order
  std::filesystem::path recipe;
  std::filesystem::path work;
  std::string until;
  bool fresh = false;
  int64_t timeout = 600;  // seconds
};

// Returns the flags of one of several processes: its share of the machine's processors, its own GPU, and quiet unless
// it leads.
recipes::Execution for_launch(recipes::Execution execution, const Launch& launch) {
  // Not the launcher's own choice: torchrun sets OMP_NUM_THREADS to 1.
  if (execution.threads == 0) execution.threads = std::max<int64_t>(1, cpu_cores() / launch.local_size);
  const bool any_gpu = execution.device == "cuda" || (execution.device == "auto" && choose_device("auto").is_cuda());
  if (any_gpu) execution.device = fmt::format("cuda:{}", launch.local_rank);
  execution.quiet = execution.quiet || launch.rank > 0;
  return execution;
}

// Lists the results of a stage that a user looks for.
std::string products(const std::filesystem::path& directory) {
  std::string text;
  for (const char* name : {"model", "corpus.h5", "spiece.model", "results.json", "report.html", "hyp"}) {
    if (std::filesystem::exists(directory / name)) text += fmt::format("    {}\n", (directory / name).string());
  }
  return text.empty() ? fmt::format("    {}\n", directory.string()) : text;
}

int run_train(const TrainFlags& flags) {
  const auto launch = find_launch();
  recipes::Execution execution = launch ? for_launch(flags.execution, *launch) : flags.execution;
  const c10::Device device = begin_execution(execution);
  require_recipe(flags.recipe, true);
  const recipes::Recipe recipe = recipes::load_recipe(flags.recipe, flags.set);
  const SignalWatch signals;
  std::optional<ProcessGroup> several;
  if (launch) {
    several.emplace(*launch, GroupOptions{.timeout = std::chrono::seconds(flags.timeout), .device = device});
    log_info("{} processes", launch->size);
  }
  ProcessGroup& world = several ? *several : ProcessGroup::single();
  execution.world = &world;
  const auto results = recipes::run_recipe(
      recipe, {.work = flags.work, .until = flags.until, .fresh = flags.fresh, .execution = execution});
  if (!world.leads()) return 0;
  for (const auto& result : results) {  // of finished evaluations, whose stages were skipped
    const auto file = result.directory / "results.json";
    if (!result.skipped || !std::filesystem::exists(file)) continue;
    std::cout << evaluate::results_table(evaluate::load_results(file));
  }
  std::cout << "\nResults:\n";
  for (const auto& result : results) {
    std::cout << fmt::format("  {}{}\n{}", result.stage, result.skipped ? " (was finished)" : "",
                             products(result.directory));
  }
  for (const auto& result : results) {
    const auto verdict = result.directory / "verdict.txt";
    if (std::filesystem::exists(verdict)) std::cout << "\n" << read_file(verdict);
  }
  return 0;
}

// Returns a line for each command that an evaluation of these options runs as a task's metric.
std::string commands_of(const nlohmann::ordered_json& options, const std::string& stage = "") {
  std::string lines;
  for (const auto& task : options.value("task", nlohmann::ordered_json::array())) {
    const std::string command = task.value("/metric/command"_json_pointer, "");
    if (command.empty()) continue;
    lines += fmt::format("\n  {}task {} runs the command: {}", stage, task.value("name", ""), command);
  }
  return lines;
}

// Returns a line about the file. Throws a UserError with all its problems.
std::string validate_file(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  if (recipes::is_recipe(load_toml(file))) {
    const recipes::Recipe recipe = recipes::load_recipe(file, overrides);
    std::string text =
        fmt::format("{}: recipe '{}', {} stages, no errors", file.string(), recipe.name, recipe.stages.size());
    for (const auto& stage : recipe.stages) text += commands_of(stage.checked.options, "stage " + stage.name + ", ");
    return text;
  }
  const evaluate::SuiteOptions suite = evaluate::load_suite(file, overrides);
  return fmt::format("{}: suite '{}', {} tasks, {} runs, no errors", file.string(), suite.name, suite.task.size(),
                     suite.run.size()) +
         commands_of(options_to_json(suite));
}

int run_validate(const std::vector<std::filesystem::path>& files, const std::vector<std::string>& overrides) {
  Problems problems;
  for (const auto& file : files) {
    try {
      std::cout << validate_file(file, overrides) << "\n";
    } catch (const UserError& error) {
      problems.add_all(error.problems());
    }
  }
  problems.throw_if_any();
  return 0;
}

}  // namespace

void require_recipe(const std::filesystem::path& file, bool recipe) {
  const toml::table table = load_toml(file);
  if (recipe ? !table.contains("task") || recipes::is_recipe(table) : !recipes::is_recipe(table)) return;
  throw UserError({.where = file.string(),
                   .what = recipe ? "this is the suite of an evaluation, no recipe" : "this is a recipe, no suite",
                   .hint = fmt::format("draftsmith {} {}", recipe ? "eval" : "train", shell_word(file.string()))});
}

Action add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  app.add_option("recipe", flags->recipe, "Recipe (TOML)")->required()->type_name("RECIPE.toml");
  app.add_option("--work", flags->work, "Directory of the stages' directories (default: work/NAME)")->type_name("DIR");
  app.add_option("--until", flags->until, "Last stage to run")->type_name("STAGE");
  app.add_flag(
      "--fresh", flags->fresh,
      "Redo every stage, and keep what is there under other names; to go on after an interruption, leave it out");
  app.add_option("--timeout", flags->timeout,
                 "Of several processes (torchrun): seconds to wait for the others at the start and in a training step")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400))
      ->type_name("SECONDS");
  add_set_flag(app, flags->set);
  add_execution_flags(app, flags->execution);
  app.footer(
      "Finished stages are skipped, changed stages are redone beside the old ones, and an interrupted stage\n"
      "continues.\n"
      "Examples:\n"
      "  draftsmith train recipes/quickstart.toml\n"
      "  draftsmith train recipes/quickstart.toml --until target --set target.training.length='2 epochs'\n"
      "  draftsmith train recipes/multi30k.toml --work /data/multi30k --device cuda\n"
      "  torchrun --nproc-per-node=4 --no-python draftsmith train recipes/multi30k.toml");
  return [flags] { return run_train(*flags); };
}

Action add_validate(CLI::App& app) {
  auto files = std::make_shared<std::vector<std::filesystem::path>>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  app.add_option("file", *files, "Recipes and suites (TOML)")->required()->type_name("FILE.toml");
  add_set_flag(app, *overrides);
  app.footer(
      "Examples:\n  draftsmith validate recipes/*.toml\n"
      "  draftsmith validate suite.toml --set task.test.limit=100");
  return [files, overrides] { return run_validate(*files, *overrides); };
}

}  // namespace draftsmith::cli
