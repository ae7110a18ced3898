#include "recipes/stages/exit_training.h"

#include "base/logging.h"
#include "train/trainable/exit_trainables.h"

namespace draftsmith::recipes {

namespace {

// Copies parameters of the same names and shapes from earlier exits.
void take_up(const model::Exits& earlier, const model::Exits& into, const std::filesystem::path& from) {
  int64_t taken = 0;
  for (const auto& [name, value] : into.parameters()) {
    const auto found = earlier.parameters().find(name);
    if (found == earlier.parameters().end() || found->second.sizes() != value.sizes()) continue;
    at::Tensor begun = value;
    begun.copy_(found->second);
    ++taken;
  }
  if (taken > 0) log_info("  norms of the exits start from those in {}", from.string());
}

}  // namespace

TrainableModels exit_trainable(const train::ExitTrainingOptions& options,
                               std::unique_ptr<model::TransformerModel> model, const std::filesystem::path& from) {
  const int64_t layers = model->config().decoder_layers;
  Problems problems;
  train::check_fits(options, layers, "exits", problems);
  problems.throw_if_any();
  TrainableModels made;
  // Needs no random numbers: exits of a model in training share its head.
  made.exits = std::make_unique<model::Exits>(train::exit_config(options, layers), *model, 0);
  if (const auto inside = model::exits_directory(from); !from.empty() && model::holds_exits(inside)) {
    take_up(*model::load_exits(inside, from, *model), *made.exits, from);
  }
  made.trainable = std::make_unique<train::ExitTrainable>(*model, *made.exits, train::loss_weights(options, layers));
  made.models.push_back(std::move(model));
  return made;
}

}  // namespace draftsmith::recipes
