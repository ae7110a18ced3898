// `draftsmith train`: runs a recipe.
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "evaluate/report/report.h"
#include "recipes/pipeline.h"

namespace draftsmith::cli {

namespace {

struct TrainFlags {
  CommonFlags common;
  std::filesystem::path recipe;
  std::filesystem::path work;
  std::string until;
  bool fresh = false;
};

// Lists the results of a stage that a user looks for.
std::string products(const std::filesystem::path& directory) {
  std::string text;
  for (const char* name : {"model", "corpus.h5", "spiece.model", "results.json", "report.html", "hyp"}) {
    if (std::filesystem::exists(directory / name)) text += fmt::format("    {}\n", (directory / name).string());
  }
  return text.empty() ? fmt::format("    {}\n", directory.string()) : text;
}

// Returns the results table of a finished evaluation, whose stage was skipped; empty without results.
std::string finished_table(const std::filesystem::path& directory) {
  const auto file = directory / "results.json";
  if (!std::filesystem::exists(file)) return "";
  try {
    return evaluate::results_table(evaluate::load_results(file));
  } catch (const UserError&) {
    log_warning("{}: written by a version whose results this one cannot show", file.string());
    return "";
  }
}

int run_train(const TrainFlags& flags) {
  const ExecutionContext context = begin_execution(flags.common.execution);
  const recipes::Recipe recipe = recipes::load_recipe(flags.recipe, flags.common.set);
  recipes::PipelineOptions options;
  options.work = flags.work.empty() ? std::filesystem::path("work") / recipe.name : flags.work;
  options.until = flags.until;
  options.fresh = flags.fresh;
  options.execution = {
      .device = flags.common.execution.device, .threads = flags.common.execution.threads, .progress = context.progress};
  const SignalWatch signals;
  const auto results = recipes::run_recipe(recipe, options);
  for (const auto& result : results) {
    if (result.skipped) std::cout << finished_table(result.directory);
  }
  std::cout << "\nResults:\n";
  for (const auto& result : results) {
    std::cout << fmt::format("  {}{}\n{}", result.stage, result.skipped ? " (was finished)" : "",
                             products(result.directory));
  }
  return 0;
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  app.add_option("recipe", flags->recipe, "Recipe (TOML)")->required()->type_name("RECIPE.toml");
  app.add_option("--work", flags->work, "Directory of the stages' directories (default: work/NAME)")->type_name("DIR");
  app.add_option("--until", flags->until, "Last stage to run")->type_name("STAGE");
  app.add_flag("--fresh", flags->fresh, "Redo every stage; existing results are kept under another name");
  add_set_flag(app, flags->common.set);
  add_execution_flags(app, flags->common.execution);
  app.footer(
      "Finished stages are skipped, changed stages are redone beside the old ones, and an interrupted stage\n"
      "continues.\n"
      "Examples:\n"
      "  draftsmith train recipes/quickstart.toml\n"
      "  draftsmith train recipes/quickstart.toml --until target --set target.training.length='2 epochs'\n"
      "  draftsmith train recipes/multi30k_bild.toml --work /data/multi30k --device cuda");
  return [flags] { return run_train(*flags); };
}

}  // namespace draftsmith::cli
