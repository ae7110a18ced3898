// draftsmith prune: cuts a smaller model out of a trained one.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/option_flags.h"
#include "recipes/pruning.h"

namespace draftsmith::cli {

namespace {

struct PruneFlags {
  std::string model;
  std::string out;
};

int run_prune(const PruneFlags& flags, const model::PruneOptions& options) {
  const recipes::PruneReport report = recipes::prune_directory(flags.model, flags.out, options);
  fmt::print("{}: {}\n", flags.out, report.text());
  return 0;
}

}  // namespace

std::function<int()> add_prune(CLI::App& app) {
  auto flags = std::make_shared<PruneFlags>();
  app.add_option("--model", flags->model, "Model directory to cut from")->required();
  app.add_option("--out", flags->out, "New model directory")->required();
  auto options = std::make_shared<OptionFlags<model::PruneOptions>>(app);
  app.footer(
      "The result is an ordinary model directory: align it (recipes, from = DIR) before it drafts.\n"
      "Examples:\n  draftsmith prune --model TARGET --out DRAFTER --decoder-layers every:3\n"
      "  draftsmith prune --model TARGET --out DRAFTER --decoder-layers 0,5 --ff-width 512 --heads 4");
  return [flags, options] {
    Problems problems;
    const model::PruneOptions wanted = options->value(problems);
    problems.throw_if_any();
    return run_prune(*flags, wanted);
  };
}

}  // namespace draftsmith::cli
