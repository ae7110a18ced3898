#include "recipes/model_inspection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/files.h"
#include "model/files/model_directory.h"
#include "model/kinds/deep_tandem.h"
#include "model/kinds/exits.h"
#include "model/kinds/shared_encoder.h"
#include "model/kinds/tandem.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

std::string stored_types(const model::ModelDescription& model) {
  std::string types;
  for (const auto& [type, tensors] : model.dtypes) {
    types += fmt::format("{}{} x {}", types.empty() ? "" : ", ", tensors, type);
  }
  return types;
}

// Returns the line about another model that this one reads.
std::string describe_companion(const char* role, const std::optional<model::CompanionRecord>& companion) {
  if (!companion) return fmt::format("  {:<15}not named\n", role);
  return fmt::format("  {:<15}{}, sha256 {}\n", role, companion->path, companion->hash.substr(0, 16));
}

std::string describe_tandem(const fs::path& directory, const model::TandemShape& tandem) {
  std::string text = fmt::format("  Tandem         reads layers {} of a primary of {} layers, width {}\n",
                                 fmt::join(tandem.layer_map, ", "), tandem.primary_layers, tandem.primary_width);
  text += fmt::format("  block          trained with {} tokens (any number decodes)\n", tandem.block);
  return text + describe_companion("primary", model::recorded_primary(directory));
}

std::string describe_shared_encoder(const fs::path& directory, int64_t width) {
  return fmt::format("  shared encoder reads its target's states, width {}\n", width) +
         describe_companion("target", model::recorded_target(directory));
}

// Returns the lines about one transformer.
std::string describe_shape(const model::ModelDescription& model) {
  const auto& c = model.config;
  std::string text = fmt::format("  parameters     {} ({})\n", model.parameters, stored_types(model));
  text += fmt::format("  layers         {} encoder, {} decoder\n", c.encoder_layers, c.decoder_layers);
  text += fmt::format("  width          {}, {} heads of {}, feed-forward {}{}\n", c.width, c.heads, c.head_width,
                      c.ff_width, c.gated ? ", gated" : "");
  text += fmt::format("  vocabulary     {}, head {}\n", c.vocabulary, c.tied_head ? "tied to the embedding" : "untied");
  if (!c.draft_vocabulary.ids.empty()) {
    text += fmt::format("  pruned to      {} of these ids (d2t, t2d); id {} stands in for the others\n",
                        c.vocabulary_rows(), c.draft_vocabulary.stand_in);
  }
  for (const auto& [file, bytes] : model.weight_files) text += fmt::format("  {}: {}\n", file, human_bytes(bytes));
  return text;
}

std::string describe_deep_tandem(const fs::path& directory) {
  const auto parts = model::describe_deep_tandem(directory);
  std::string text = fmt::format("deep Tandem of family {}, {} parameters, blocks of {} tokens\n", parts.small.family,
                                 parts.large.parameters + parts.small.parameters, parts.large.config.block_attention);
  text += "large part (sketches of the next block)\n" + describe_shape(parts.large);
  return text + "small part (predicts)\n" + describe_shape(parts.small);
}

bool is_deep_tandem(const fs::path& directory) {
  return model::kind_of_directory(directory) == model::deep_tandem_kind();
}

}  // namespace

std::string describe_model_directory(const fs::path& directory) {
  if (is_deep_tandem(directory)) return describe_deep_tandem(directory);
  const auto model = model::describe_model(directory);
  std::string text = fmt::format("model of family {} ({})\n", model.family, model.architecture) + describe_shape(model);
  if (model.config.tandem_secondary()) text += describe_tandem(directory, model.config.tandem);
  if (model.config.shares_encoder()) text += describe_shared_encoder(directory, model.config.shared_encoder_width);
  if (model.config.block_attention > 0) {
    text += fmt::format("  predicts       blocks of {} tokens at once\n", model.config.block_attention);
  }
  if (!model.tokenizer_file.empty()) {
    text += fmt::format("  tokenizer      {}, sha256 {}\n", model.tokenizer_file, model.tokenizer_hash.substr(0, 16));
  }
  const fs::path exits = model::exits_directory(directory);
  return fs::exists(exits) ? text + model::describe_exits(exits) : text;
}

void check_model_directory(const fs::path& directory) {
  model::kind_of_directory(directory).check_directory(directory);
  const fs::path exits = model::exits_directory(directory);
  if (fs::exists(exits)) model::check_exit_directory(exits, directory);
}

void check_exits(const fs::path& directory) {
  const fs::path whole = fs::canonical(directory);
  const fs::path model = whole.parent_path().parent_path();
  const bool inside = whole == model::exits_directory(model) && fs::exists(model / "config.json");
  model::check_exit_directory(directory, inside ? model : fs::path());
}

}  // namespace draftsmith::recipes
