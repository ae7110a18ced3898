#include "recipes/stages/starting_models.h"

#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device.h"
#include "base/logging.h"
#include "data/corpus/corpus.h"
#include "model/families/family.h"
#include "model/files/model_directory.h"
#include "model/models/block_models.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "model/pruning/pruning.h"
#include "recipes/stages/data_stages.h"
#include "train/trainable/tandem_trainables.h"
#include "train/trainable/trainable_features.h"

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
  // A teacher of half precision needs its plain head, whose logits are not rounded.
  return model::load_model(directory,
                           {.device = place.device, .dtype = place.frozen, .pack = place.frozen == at::kFloat});
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

Problem missing_model(const std::string& option, const std::string& what) {
  return {.where = option, .what = what, .expected = "a model directory", .found = "none given"};
}

// Returns the primary's directory: the option, or the one that the Tandem directory `from` names.
fs::path primary_of(const StartOptions& options) {
  if (options.tandem->primary) return *options.tandem->primary;
  if (starts_from(options, model::tandem_kind()))
    return model::companion_directory(model::tandem_kind(), *options.from);
  throw UserError(missing_model("tandem.primary", "a secondary that is not yet part of a Tandem needs a primary"));
}

// Returns the target's directory: the option, or the one that the drafter's directory `from` names.
fs::path target_of(const StartOptions& options) {
  if (options.shared_encoder->target) return *options.shared_encoder->target;
  if (starts_from(options, model::shared_encoder_kind()))
    return model::companion_directory(model::shared_encoder_kind(), *options.from);
  throw UserError(
      missing_model("shared_encoder.target", "a drafter that does not share an encoder yet needs a target"));
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

// Makes the secondary of an ordinary model, which gives all parameters but the projections; its encoder is left out.
ModelPointer new_secondary(const TandemTrainingOptions& options, const model::TransformerModel& ordinary,
                           const model::TransformerModel& primary) {
  return model::make_tandem_secondary(ordinary, primary,
                                      {.layer_map = options.layer_map,
                                       .block = options.block.value_or(2),
                                       .projections = projection_start(options.projections),
                                       .seed = options.seed});
}

StartingModels tandem_start(const StartOptions& all, const data::Tokenizer& tokenizer, const ModelPlace& place) {
  const TandemTrainingOptions& options = *all.tandem;
  const fs::path directory = primary_of(all);
  const bool frozen = !trains_primary(options);
  auto primary =
      frozen ? load_frozen(directory, place) : model::load_model(directory, {.device = place.device, .pack = false});
  auto secondary =
      starts_from(all, model::tandem_kind())
          ? continued_secondary(options, *all.from, directory, place.device)
          : new_secondary(options, *ordinary_start(all, tokenizer, "the secondary", place.device), *primary);
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
  const fs::path directory = target_of(options);
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

// Returns the directory of a features drafter's target: the option, or the one that the directory `from` names.
// Errors: UserError for a `from` of another kind.
fs::path features_target_of(const StartOptions& options) {
  if (options.from && !starts_from(options, model::features_kind())) {
    throw UserError(
        {.where = "from",
         .what = "a stage with `features` goes on from features drafters only",
         .expected = "a directory that such a stage made, or none: `features.target` gives a start",
         .found = fmt::format("{}, {}", options.from->string(), model::kind_of_directory(*options.from).name)});
  }
  if (options.features->target) return *options.features->target;
  return model::companion_directory(model::features_kind(), options.from.value());
}

// Returns the ids that most targets of a corpus's texts have, with all special ones; none: all.
model::DraftVocabulary frequent_vocabulary(const FeatureTrainingOptions& options, const data::Tokenizer& tokenizer,
                                           const model::TransformerModel& target) {
  if (!options.vocabulary_from) return {};
  const data::Corpus corpus(*options.vocabulary_from);
  require_same_tokenizer(tokenizer.hash(), corpus.info().tokenizer_hash, corpus.file(),
                         "prepare it with the tokenizer of this stage");
  model::PruneEvidence evidence;
  evidence.token_counts.assign(static_cast<size_t>(target.config().vocabulary), 0);
  for (int64_t i = 0; i < corpus.size(); ++i) {
    for (const int32_t id : corpus.target(i)) ++evidence.token_counts.at(static_cast<size_t>(id));
  }
  const model::PruneOptions prune{.vocabulary_size = options.vocabulary_size};
  try {
    model::require_prunable(target.config(), prune, evidence);
  } catch (const UserError& error) {
    Problems problems;
    problems.add_all(error.problems(), "features.");
    problems.throw_if_any();
  }
  return model::prune(target, prune, evidence)->config().draft_vocabulary;
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

StartingModels feature_start(const StartOptions& all, const data::Tokenizer& tokenizer, const ModelPlace& place) {
  const FeatureTrainingOptions& options = *all.features;
  const fs::path directory = features_target_of(all);
  // Its plain head computes losses, whose gradients go through it.
  auto target = model::load_model(directory, {.device = place.device, .pack = false});
  auto drafter =
      all.from ? continued_features(all, directory, place.device)
               : model::make_feature_drafter(*target, {.decoder_layers = options.decoder_layers.value_or(1),
                                                       .layers = options.layers,
                                                       .vocabulary = frequent_vocabulary(options, tokenizer, *target),
                                                       .unrolled = options.unrolled.value_or(3),
                                                       .random = options.start == "random",
                                                       .seed = options.seed.value_or(1)});
  StartingModels made;
  made.trainable = std::make_unique<train::FeatureTrainable>(
      *drafter, *target, train::FeatureTrainableOptions{.target_directory = directory, .decay = options.decay});
  made.models.push_back(std::move(drafter));
  made.models.push_back(std::move(target));
  return made;
}

StartingModels exit_start(const StartOptions& all, ModelPointer model) {
  const train::ExitTrainingOptions& options = *all.exits;
  const int64_t layers = model->config().decoder_layers;
  Problems problems;
  train::check_fits(options, layers, "exits", problems);
  problems.throw_if_any();
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

// Checks the tables that say what is trained. Models that work in blocks start from random weights.
void check_blocks(const StartOptions& options, const std::string& where, Problems& problems) {
  const bool blocks = options.block_prediction || options.deep_tandem;
  const int kinds = options.tandem.has_value() + options.shared_encoder.has_value() + options.deep_tandem.has_value() +
                    options.block_prediction.has_value() + options.exits.has_value() + options.features.has_value();
  if (kinds > 1) {
    problems.add(
        {.where = where,
         .what = "a model is of one kind",
         .expected = "one of `exits`, `tandem`, `features`, `shared_encoder`, `deep_tandem` and `block_prediction`"});
  }
  if (blocks && options.from) {
    problems.add({.where = where + ".from",
                  .what = "deep Tandems and models of block prediction start from random weights",
                  .expected = "`architecture`",
                  .found = options.from->string()});
  }
}

// Checks a drafter of random weights that is to share an encoder.
void check_shared_encoder(const StartOptions& options, const std::string& where, Problems& problems) {
  if (!options.shared_encoder->target) {
    problems.add(missing_model(where + ".shared_encoder.target", "a drafter of random weights needs a target"));
  }
  const model::Family* family = model::families().find(options.architecture->family);
  if (family != nullptr && !family->base.encoder_decoder) {
    problems.add({.where = where + ".architecture.family",
                  .what = "a drafter that shares an encoder is an encoder-decoder without its own",
                  .expected = "t5, marian or another family of encoder-decoders",
                  .found = family->name});
  }
}

// Refuses what the features drafter in `from` has already.
void check_continued_features(const FeatureTrainingOptions& options, const std::string& where, Problems& problems) {
  const std::map<std::string, bool> given = {{"decoder_layers", options.decoder_layers.has_value()},
                                             {"layers", !options.layers.empty()},
                                             {"vocabulary_from", options.vocabulary_from.has_value()},
                                             {"vocabulary_size", options.vocabulary_size.has_value()},
                                             {"start", options.start.has_value()},
                                             {"seed", options.seed.has_value()}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    problems.add({.where = where + "." + name,
                  .what = "`from` is a features drafter, which keeps its layers, its vocabulary and its weights",
                  .expected = "none given"});
  }
}

// Checks a features drafter, whose shape is its target's.
void check_features(const StartOptions& options, const std::string& where, Problems& problems) {
  const FeatureTrainingOptions& features = *options.features;
  if (options.architecture) {
    problems.add({.where = where + ".architecture",
                  .what = "a features drafter has the shape of its target's layers",
                  .expected = "none given",
                  .found = options.architecture->family});
  }
  if (options.from) check_continued_features(features, where + ".features", problems);
  if (!options.from && !features.target) {
    problems.add(missing_model(where + ".features.target", "a features drafter reads a target"));
  }
  if (features.vocabulary_size && !features.vocabulary_from) {
    problems.add({.where = where + ".features.vocabulary_from",
                  .what = "tokens are counted to choose a vocabulary",
                  .expected = "a corpus (.h5)"});
  }
}

void check_start(const StartOptions& options, const std::string& where, Problems& problems) {
  if (options.features) {
    check_features(options, where, problems);
    return check_blocks(options, where, problems);
  }
  if (options.from.has_value() == options.architecture.has_value()) {
    problems.add({.where = where,
                  .what = "a model starts either from another model or from random weights",
                  .expected = "one of `from` and `architecture`",
                  .found = options.from ? "both" : "neither"});
  }
  check_blocks(options, where, problems);
  if (options.exits && options.architecture) {
    train::check_fits(*options.exits, options.architecture->decoder_layers, where + ".exits", problems);
  }
  if (options.shared_encoder && options.architecture) check_shared_encoder(options, where, problems);
  if (!options.tandem || !options.architecture) return;
  if (!options.tandem->primary) {
    problems.add(missing_model(where + ".tandem.primary", "a secondary of random weights needs a primary"));
  }
  const auto mapped = static_cast<int64_t>(options.tandem->layer_map.size());
  if (mapped > 0 && mapped != options.architecture->decoder_layers) {
    problems.add(
        {.where = where + ".tandem.layer_map",
         .what = "has not one number for each layer of the secondary",
         .expected = fmt::format("{} numbers (architecture.decoder_layers)", options.architecture->decoder_layers),
         .found = std::to_string(mapped)});
  }
}

}  // namespace

Fields<TandemTrainingOptions> TandemTrainingOptions::fields() {
  using T = TandemTrainingOptions;
  return Fields<T>("Tandem training")
      .add("primary", &T::primary,
           "Model directory of the primary; absent: the primary of the Tandem directory in `from`.")
      .add("layer_map", &T::layer_map, Range{0},
           "Representation of the primary that each layer j of the secondary reads: 0 is the embedding output, "
           "L_L the last layer. Absent: evenly spread, (j+1) L_L / L_S rounded down.")
      .add("block", &T::block, Range{1}, Unit{"tokens"},
           "Block length G of training; decoding may use any. Absent: 2, or the block of the Tandem in `from`.")
      .add("projections", &T::projections, Choices{"random", "identity"},
           "Initial projections: random numbers (the default), or the unit matrix, cut or padded with zeros.")
      .add("seed", &T::seed, "Seed of random projections.")
      .add("configuration", &T::configuration, Choices(train::tandem_configurations().names()),
           "Trained models: the secondary alone; both models by the secondary's loss; or both by the sum of the losses "
           "of both.")
      .add("copy_primary", &T::copy_primary,
           "Copy a frozen primary into the result, instead of naming it by path and hash. A trained primary is always "
           "copied.");
}

Fields<DeepTandemTrainingOptions> DeepTandemTrainingOptions::fields() {
  using T = DeepTandemTrainingOptions;
  return Fields<T>("deep Tandem training")
      .add("large", &T::large,
           "Shape of the large part, a decoder-only model; `architecture` is the shape of the small part.")
      .add("block", &T::block, Range{1}, Unit{"tokens"}, "Block length G: the large part runs G tokens behind.")
      .check([](const T& options, const std::string& where, Problems& problems) {
        if (options.large) return;
        problems.add({.where = where + ".large", .what = "a deep Tandem needs the shape of its large part"});
      });
}

Fields<SharedEncoderTrainingOptions> SharedEncoderTrainingOptions::fields() {
  using T = SharedEncoderTrainingOptions;
  return Fields<T>("training of a drafter that shares an encoder")
      .add(
          "target", &T::target,
          "Model directory of the target, whose frozen encoder is shared; absent: the target of the drafter in `from`.")
      .add(
          "projection", &T::projection, Choices{"random", "identity"},
          "Initial projection of the target's encoder states: random numbers (the default), or the unit matrix, cut or "
          "padded with zeros.")
      .add("seed", &T::seed, "Seed of a random projection.");
}

Fields<FeatureTrainingOptions> FeatureTrainingOptions::fields() {
  using T = FeatureTrainingOptions;
  return Fields<T>("training of a features drafter")
      .add("target", &T::target,
           "Model directory of the target, which is frozen; absent: the target of the drafter in `from`.")
      .add("decoder_layers", &T::decoder_layers, Range{1, 8}, Unit{"layers"},
           "Layers of the drafter. Absent: 1, or those of the drafter in `from`.")
      .add("layers", &T::layers, Range{0},
           "Layers of the target whose states are read: 0 is the embedding output. Absent: a low one, the middle and "
           "the last.")
      .add("vocabulary_from", &T::vocabulary_from,
           "Corpus (.h5) whose targets' most frequent tokens the drafter has a head for; absent: the target's head.")
      .add("vocabulary_size", &T::vocabulary_size, Range{1}, Unit{"ids"},
           "How many ids that head has, special tokens included. Absent: all that occur there.")
      .add(
          "unrolled", &T::unrolled, Range{1, 16}, Unit{"steps"},
          "Steps of a draft that a training pass unrolls: from the second on the drafter reads its own states. Absent: "
          "3, or as the drafter in `from`.")
      .add("decay", &T::decay, Range{0.01, 1}, "Weight of each step's loss relative to the step before.")
      .add("start", &T::start, Choices{"target", "random"},
           "Initial layers: the target's last ones, as far as they fit (the default), or random numbers.")
      .add("seed", &T::seed, "Seed of random numbers. Absent: 1.");
}

Fields<StartOptions> StartOptions::fields() {
  using T = StartOptions;
  return Fields<T>("start of a training")
      .add("from", &T::from, "Model directory to start from.")
      .add("architecture", &T::architecture, "Shape of a model that starts from random weights.")
      .add("exits", &T::exits,
           "Train it with losses at several layers, so that it can be read early: for early-exit drafting and CALM. "
           "Makes an ordinary model directory with draftsmith/exits inside.")
      .add("tandem", &T::tandem,
           "Train it as the secondary of a Tandem: `from` or `architecture` gives its decoder, which reads a primary's "
           "representations of all tokens but the current block's. Makes a Tandem directory.")
      .add("shared_encoder", &T::shared_encoder,
           "Train it as a drafter that shares its target's encoder: `from` or `architecture` gives its decoder, which "
           "cross-attends to a projection of the target's encoder states. Makes a directory for --drafter.")
      .add("features", &T::features,
           "Train a drafter of one or two layers that reads its target's hidden states, in place of `architecture`. "
           "Makes a directory for --drafter.")
      .add("deep_tandem", &T::deep_tandem,
           "Train a deep Tandem: a large part that runs in blocks, and `architecture`, which it sketches them for. "
           "Decoder-only; for comparisons of architectures.")
      .add("block_prediction", &T::block_prediction, Range{1}, Unit{"tokens"},
           "Train a decoder-only model that predicts a whole block of so many tokens at once; for comparisons of "
           "architectures.")
      .check(check_start);
}

at::ScalarType frozen_type(const std::string& precision, at::Device device) {
  return precision == "bf16" && !device.is_cpu() ? at::kBFloat16 : at::kFloat;
}

StartingModels starting_models(const StartOptions& options, const data::Tokenizer& tokenizer, const ModelPlace& place,
                               bool teaches) {
  if (options.deep_tandem) return deep_tandem_start(options, tokenizer, place.device);
  if (options.tandem) return tandem_start(options, tokenizer, place);
  if (options.features) return feature_start(options, tokenizer, place);
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
  if (options.features) return is_same_model(features_target_of(options), model);
  return options.tandem && !trains_primary(*options.tandem) && is_same_model(primary_of(options), model);
}

bool is_shared_target(const StartOptions& options, const fs::path& model) {
  return options.shared_encoder && is_same_model(target_of(options), model);
}

}  // namespace draftsmith::recipes
