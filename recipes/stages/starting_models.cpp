#include "recipes/stages/starting_models.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/logging.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "model/pruning/pruning.h"
#include "recipes/pruning.h"
#include "recipes/stages/data_stages.h"
#include "train/trainable/tandem_trainables.h"
#include "train/training_step.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using ModelPointer = std::unique_ptr<model::TransformerModel>;

// Makes an ordinary model of random weights.
ModelPointer fresh_model(model::TransformerConfig config, uint64_t seed, at::Device device) {
  auto made = std::make_unique<model::TransformerModel>(std::move(config), seed);
  made->to(device, at::kFloat);
  return made;
}

// Loads the ordinary model that training begins from, unpacked, or makes one, which messages call `name`, if any.
ModelPointer ordinary_start(const StartOptions& options, const data::Tokenizer& tokenizer, const std::string& name,
                            at::Device device) {
  if (!options.from) {
    auto made = fresh_model(make_config(*options.architecture, tokenizer), options.architecture->seed, device);
    if (!name.empty()) made->set_name(name);
    return made;
  }
  return model::load_model(*options.from, {.device = device, .pack = false});
}

// Loads a model that is not trained.
ModelPointer load_frozen(const fs::path& directory, const ModelPlace& place) {
  return model::load_model(directory, {.device = place.device, .dtype = place.frozen, .pack = place.packs});
}

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

// Returns whether training starts from a model of that kind.
bool starts_from(const StartOptions& options, const model::ModelKind& kind) {
  return options.from && model::kind_of_directory(*options.from) == kind;
}

bool is_same_model(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return fs::equivalent(one, other, error) || model::model_hash(one) == model::model_hash(other);
}

// Returns the directory of the model that the trained one reads (a Tandem's primary, or a drafter's target): the
// option, or the one that the directory `from`, of the same kind, names.
fs::path companion_of(const StartOptions& options) {
  const auto named = [&](const model::ModelKind& kind, const std::optional<fs::path>& given, const char* option,
                         const char* need) {
    if (given) return *given;
    if (starts_from(options, kind)) return model::companion_directory(kind, *options.from);
    throw UserError(missing_model(option, need));
  };
  if (options.tandem) {
    return named(model::tandem_kind(), options.tandem->primary, "tandem.primary",
                 "a secondary that is not yet part of a Tandem needs a primary");
  }
  if (options.shared_encoder) {
    return named(model::shared_encoder_kind(), options.shared_encoder->target, "shared_encoder.target",
                 "a drafter that does not share an encoder yet needs a target");
  }
  if (options.from) model::require_kind(model::kind_of_directory(*options.from), model::features_kind(), "from");
  return named(model::features_kind(), options.features->target, "features.target",
               "a features drafter reads a target");
}

bool trains_primary(const TandemTrainingOptions& options) {
  return train::tandem_configurations().at(options.configuration) != train::TandemConfiguration::kPrimaryFrozen;
}

model::ProjectionStart projection_start(const std::optional<std::string>& name) {
  return name == "identity" ? model::ProjectionStart::kIdentity : model::ProjectionStart::kRandom;
}

template <class Trainable>
StartingModels trained_alone(ModelPointer model) {
  StartingModels start;
  start.trainable = std::make_unique<Trainable>(*model);
  start.models.push_back(std::move(model));
  return start;
}

// Continues a Tandem: the secondary keeps its layer map and projections, but its block may change.
ModelPointer continued_secondary(const TandemTrainingOptions& options, const fs::path& from, const fs::path& primary,
                                 at::Device device) {
  auto secondary = model::load_with_companion(model::tandem_kind(), from, primary, {.device = device, .pack = false});
  model::TransformerConfig config = secondary->config();
  Problems problems;
  if (!options.layer_map.empty() && options.layer_map != config.tandem.layer_map) {
    problems.add({.where = "tandem.layer_map",
                  .what = fmt::format("`from` is the Tandem {}, which has another one", from.string()),
                  .expected = fmt::format("{}, or none given", fmt::join(config.tandem.layer_map, ", ")),
                  .found = fmt::format("{}", fmt::join(options.layer_map, ", "))});
  }
  if (options.projections) {
    problems.add({.where = "tandem.projections",
                  .what = fmt::format("`from` is the Tandem {}, which has projections already", from.string()),
                  .expected = "none given",
                  .found = *options.projections});
  }
  problems.throw_if_any();
  if (!options.block || *options.block == config.tandem.block) return secondary;
  config.tandem.block = *options.block;
  auto changed = std::make_unique<model::TransformerModel>(config, secondary->parameters());
  changed->set_name(secondary->info().name);
  return changed;
}

StartingModels tandem_start(const StartOptions& all, const data::Tokenizer& tokenizer, const ModelPlace& place) {
  const TandemTrainingOptions& options = *all.tandem;
  const fs::path directory = companion_of(all);
  const bool frozen = !trains_primary(options);
  auto primary =
      frozen ? load_frozen(directory, place) : model::load_model(directory, {.device = place.device, .pack = false});
  auto secondary =
      starts_from(all, model::tandem_kind())
          ? continued_secondary(options, *all.from, directory, place.device)
          : model::make_tandem_secondary(*ordinary_start(all, tokenizer, "the secondary", place.device), *primary,
                                         {.layer_map = options.layer_map,
                                          .block = options.block.value_or(2),
                                          .projections = projection_start(options.projections),
                                          .seed = options.seed});
  StartingModels made;
  made.trainable = std::make_unique<train::TandemTrainable>(
      *secondary, *primary,
      train::TandemTrainableOptions{.configuration = train::tandem_configurations().at(options.configuration),
                                    .primary_directory = frozen ? directory : fs::path(),
                                    .copy_primary = options.copy_primary});
  made.models.push_back(std::move(secondary));
  made.models.push_back(std::move(primary));
  return made;
}

// Continues a drafter, which keeps its projection.
ModelPointer continued_drafter(const StartOptions& options, const fs::path& target, at::Device device) {
  if (options.shared_encoder->projection) {
    throw UserError(
        {.where = "shared_encoder.projection",
         .what = fmt::format("`from` is the drafter {}, which has a projection already", options.from->string()),
         .expected = "none given",
         .found = *options.shared_encoder->projection});
  }
  return model::load_with_companion(model::shared_encoder_kind(), *options.from, target,
                                    {.device = device, .pack = false});
}

StartingModels shared_encoder_start(const StartOptions& options, const data::Tokenizer& tokenizer,
                                    const ModelPlace& place, bool teaches) {
  const fs::path directory = companion_of(options);
  auto target = load_frozen(directory, place);
  auto drafter = starts_from(options, model::shared_encoder_kind())
                     ? continued_drafter(options, directory, place.device)
                     : model::make_shared_encoder_drafter(
                           *ordinary_start(options, tokenizer, "the drafter", place.device), *target,
                           {projection_start(options.shared_encoder->projection), options.shared_encoder->seed});
  StartingModels made;
  made.trainable = std::make_unique<train::SharedEncoderTrainable>(
      *drafter, *target, train::SharedEncoderOptions{.target_directory = directory, .teaches = teaches});
  made.models.push_back(std::move(drafter));
  made.models.push_back(std::move(target));
  return made;
}

// Returns the ids that most targets of a corpus's texts have, with all special ones; none: all.
model::DraftVocabulary frequent_vocabulary(const FeatureTrainingOptions& options, const data::Tokenizer& tokenizer,
                                           const model::TransformerModel& target) {
  if (!options.vocabulary_from) return {};
  const model::PruneEvidence evidence{
      .token_counts = count_tokens(*options.vocabulary_from, target.config().vocabulary, &tokenizer, false)};
  const model::PruneOptions prune{.vocabulary_size = options.vocabulary_size};
  model::require_prunable(target.config(), prune, evidence, "features.");
  return model::kept_vocabulary(target, prune, evidence);
}

// Continues a features drafter, which keeps all but the steps that training unrolls.
ModelPointer continued_features(const StartOptions& all, const fs::path& target, at::Device device) {
  auto drafter =
      model::load_with_companion(model::features_kind(), *all.from, target, {.device = device, .pack = false});
  model::TransformerConfig config = drafter->config();
  config.features.unrolled = all.features->unrolled.value_or(config.features.unrolled);
  if (config.features.unrolled == drafter->config().features.unrolled) return drafter;
  auto changed = std::make_unique<model::TransformerModel>(config, drafter->parameters());
  changed->set_name(drafter->info().name);
  return changed;
}

// Returns the states that a drafter of the target reads; none, with a warning, if the cache has distributions alone.
train::StoredStates checked_states(train::StoredStates states, const fs::path& target,
                                   const std::vector<int64_t>& read) {
  if (!states.cache) return states;
  const std::vector<int64_t>& stored = states.cache->info().states.layers;
  const std::string file = states.cache->file().string();
  if (stored.empty()) {
    log_warning("{} holds no states, so the target runs in every step: set `states` in its stage", file);
    return {};
  }
  Problems problems;
  require_teacher(*states.cache, target, problems);
  if (!std::ranges::includes(stored, read)) {
    problems.add({.where = file,
                  .what = "the cache lacks states that the features drafter reads",
                  .expected = fmt::format("layers {}", fmt::join(read, ", ")),
                  .found = fmt::format("layers {}", fmt::join(stored, ", ")),
                  .hint = "set `layers` of the teacher-logits stage to them, or leave teacher_logits out"});
  }
  problems.throw_if_any();
  return states;
}

StartingModels feature_start(const StartOptions& all, const data::Tokenizer& tokenizer, const ModelPlace& place,
                             const train::StoredStates& states) {
  const FeatureTrainingOptions& options = *all.features;
  const fs::path directory = companion_of(all);
  // Its plain head computes losses, whose gradients go through it.
  auto target = model::load_model(directory, {.device = place.device, .pack = false});
  auto drafter =
      all.from ? continued_features(all, directory, place.device)
               : model::make_feature_drafter(*target, {.decoder_layers = options.decoder_layers.value_or(1),
                                                       .layers = options.layers,
                                                       .vocabulary = frequent_vocabulary(options, tokenizer, *target),
                                                       .unrolled = options.unrolled.value_or(3),
                                                       .block = options.block,
                                                       .markov_rank = options.markov_rank.value_or(0),
                                                       .random = options.start == "random",
                                                       .seed = options.seed.value_or(1)});
  StartingModels made;
  made.trainable = std::make_unique<train::FeatureTrainable>(
      *drafter, *target,
      train::FeatureTrainableOptions{.target_directory = directory,
                                     .decay = options.decay,
                                     .states = checked_states(states, directory, drafter->config().features.layers)});
  made.models.push_back(std::move(drafter));
  made.models.push_back(std::move(target));
  return made;
}

StartingModels exit_start(const StartOptions& all, ModelPointer model) {
  const train::ExitTrainingOptions& options = *all.exits;
  const int64_t layers = model->config().decoder_layers;
  throw_problems_of(train::check_fits, options, layers, "exits");
  StartingModels made;
  // Needs no random numbers: exits of a model in training share its head.
  made.exits = std::make_unique<model::Exits>(train::exit_config(options, layers), *model, 0);
  if (all.from && model::holds_exits(model::exits_directory(*all.from))) {
    take_up(*model::load_exits(model::exits_directory(*all.from), *all.from, *model), *made.exits, *all.from);
  }
  made.trainable = std::make_unique<train::ExitTrainable>(*model, *made.exits, train::loss_weights(options, layers));
  made.models.push_back(std::move(model));
  return made;
}

StartingModels deep_tandem_start(const StartOptions& options, const data::Tokenizer& tokenizer, at::Device device) {
  const model::DeepTandemParts parts{make_config(*options.deep_tandem->large, tokenizer),
                                     make_config(*options.architecture, tokenizer), options.deep_tandem->block};
  StartingModels start;
  start.deep = std::make_unique<model::DeepTandemModel>(parts, options.architecture->seed);
  start.deep->to(device, at::kFloat);
  start.trainable = std::make_unique<train::DeepTandemTrainable>(*start.deep);
  return start;
}

}  // namespace

ModelPlace place_of_training(const std::string& precision, at::Device device) {
  const bool bf16 = train::trains_in_bf16(precision, device);
  return {device, bf16 && !device.is_cpu() ? at::kBFloat16 : at::kFloat, !bf16};
}

StartingModels starting_models(const StartOptions& options, const data::Tokenizer& tokenizer, const ModelPlace& place,
                               bool teaches, const train::StoredStates& states) {
  if (options.deep_tandem) return deep_tandem_start(options, tokenizer, place.device);
  if (options.tandem) return tandem_start(options, tokenizer, place);
  if (options.features) return feature_start(options, tokenizer, place, states);
  if (options.shared_encoder) return shared_encoder_start(options, tokenizer, place, teaches);
  if (options.block_prediction) {
    const auto config = make_config(*options.architecture, tokenizer);
    return trained_alone<train::BlockPredictionTrainable>(fresh_model(
        model::block_prediction_config(config, *options.block_prediction), options.architecture->seed, place.device));
  }
  auto model = ordinary_start(options, tokenizer, "", place.device);
  if (options.exits) return exit_start(options, std::move(model));
  return trained_alone<train::PlainTrainable>(std::move(model));
}

bool is_frozen_primary(const StartOptions& options, const fs::path& model) {
  const bool frozen = options.features || (options.tandem && !trains_primary(*options.tandem));
  return frozen && is_same_model(companion_of(options), model);
}

bool is_shared_target(const StartOptions& options, const fs::path& model) {
  return options.shared_encoder && is_same_model(companion_of(options), model);
}

}  // namespace draftsmith::recipes
