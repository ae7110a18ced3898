// `draftsmith train`: runs a recipe.
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/signals.h"
#include "cli/application.h"
#include "cli/flags.h"
#include "cli/job.h"
#include "evaluate/report/report.h"
#include "recipes/pipeline.h"

namespace draftsmith::cli {

namespace {

struct TrainFlags {
  Execution execution;
  std::vector<std::string> set;  // --set KEY=VALUE, in order
  std::filesystem::path recipe;
  std::filesystem::path work;
  std::string until;
  bool fresh = false;
  int64_t timeout = kJobTimeout;  // seconds
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
  return std::filesystem::exists(file) ? evaluate::results_table(evaluate::load_results(file)) : "";
}

int run_train(const TrainFlags& flags) {
  const auto launch = find_launch(process_environment());
  const Execution execution = launch ? for_launch(flags.execution, *launch) : flags.execution;
  const c10::Device device = begin_execution(execution);
  const recipes::Recipe recipe = recipes::load_recipe(flags.recipe, flags.set);
  recipes::PipelineOptions options;
  options.work = flags.work.empty() ? std::filesystem::path("work") / recipe.name : flags.work;
  options.until = flags.until;
  options.fresh = flags.fresh;
  const SignalWatch signals;
  Job job(launch, device, flags.timeout);
  options.execution = {.device = execution.device,
                       .threads = execution.threads,
                       .quiet = execution.quiet,
                       .threads_alone = flags.execution.threads,
                       .world = &job.world()};
  const auto results = job.run([&] { return recipes::run_recipe(recipe, options); });
  if (!job.world().leads()) return 0;
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

Action add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  app.add_option("recipe", flags->recipe, "Recipe (TOML)")->required()->type_name("RECIPE.toml");
  app.add_option("--work", flags->work, "Directory of the stages' directories (default: work/NAME)")->type_name("DIR");
  app.add_option("--until", flags->until, "Last stage to run")->type_name("STAGE");
  app.add_flag("--fresh", flags->fresh, "Redo every stage; existing results are kept under another name");
  add_timeout_flag(app, flags->timeout);
  add_set_flag(app, flags->set);
  add_execution_flags(app, flags->execution);
  app.footer(
      "Finished stages are skipped, changed stages are redone beside the old ones, and an interrupted stage\n"
      "continues.\n"
      "Examples:\n"
      "  draftsmith train recipes/quickstart.toml\n"
      "  draftsmith train recipes/quickstart.toml --until target --set target.training.length='2 epochs'\n"
      "  draftsmith train recipes/multi30k_bild.toml --work /data/multi30k --device cuda\n"
      "  torchrun --nproc-per-node=4 --no-python draftsmith train recipes/multi30k_bild.toml");
  return [flags] { return run_train(*flags); };
}

}  // namespace draftsmith::cli
