#include "recipes/pruning.h"

#include <fmt/format.h>

#include "data/tokenizer.h"
#include "model/checkpoint.h"

namespace draftsmith::recipes {

namespace {

int64_t numbers_of(const model::TransformerModel& model) {
  int64_t numbers = 0;
  for (const auto& [name, tensor] : model.parameters()) numbers += tensor.numel();
  return numbers;
}

}  // namespace

std::string PruneReport::text() const {
  const auto millions = [](int64_t numbers) { return static_cast<double>(numbers) / 1e6; };
  std::string layers = fmt::format("{} of {} layers", after.decoder_layers, before.decoder_layers);
  if (before.encoder_decoder) {
    layers = fmt::format("{}+{} of {}+{} layers", after.encoder_layers, after.decoder_layers, before.encoder_layers,
                         before.decoder_layers);
  }
  return fmt::format("{:.1f} M of {:.1f} M parameters; {}, {} of {} heads and {} of {} neurons a layer",
                     millions(numbers_after), millions(numbers_before), layers, after.heads, before.heads,
                     after.ff_width, before.ff_width);
}

PruneReport prune_directory(const std::filesystem::path& model, const std::filesystem::path& out,
                            const model::PruneOptions& options) {
  const auto whole = model::load_model(model, {.pack = false});
  const auto pruned = model::prune(*whole, options);
  model::SaveOptions save;
  save.generation = model::load_generation_config(model);
  if (data::has_tokenizer(model)) save.tokenizer = data::load_tokenizer(model)->file();
  model::save_model(out, *pruned, save);
  return {.before = whole->config(),
          .after = pruned->config(),
          .numbers_before = numbers_of(*whole),
          .numbers_after = numbers_of(*pruned)};
}

}  // namespace draftsmith::recipes
