// draftsmith prune: cuts a smaller model out of a trained one.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/option_flags.h"
#include "data/tokenizer.h"
#include "model/checkpoint.h"
#include "model/pruning.h"

namespace draftsmith::cli {

namespace {

struct PruneFlags {
  std::string model;
  std::string out;
};

int64_t numbers_of(const model::TransformerModel& model) {
  int64_t numbers = 0;
  for (const auto& [name, tensor] : model.parameters()) numbers += tensor.numel();
  return numbers;
}

int run_prune(const PruneFlags& flags, const model::PruneOptions& options) {
  const auto whole = model::load_model(flags.model, {.pack = false});
  const auto pruned = model::prune(*whole, options);
  model::SaveOptions save;
  save.generation = model::load_generation_config(flags.model);
  if (data::has_tokenizer(flags.model)) save.tokenizer = data::load_tokenizer(flags.model)->file();
  model::save_model(flags.out, *pruned, save);
  const auto& before = whole->config();
  const auto& after = pruned->config();
  fmt::print("{}: {:.1f} M of {:.1f} M parameters; layers {}+{} of {}+{}, {} of {} heads, {} of {} neurons a layer\n",
             flags.out, static_cast<double>(numbers_of(*pruned)) / 1e6, static_cast<double>(numbers_of(*whole)) / 1e6,
             after.encoder_layers, after.decoder_layers, before.encoder_layers, before.decoder_layers, after.heads,
             before.heads, after.ff_width, before.ff_width);
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
