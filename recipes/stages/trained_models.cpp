#include "recipes/stages/trained_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/logging.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/shared_encoder.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// Loads the ordinary model that training begins from, unpacked, or takes the fresh one, which messages call `name`.
std::unique_ptr<model::TransformerModel> ordinary_beginning(Beginning& beginning, const std::string& name,
                                                            at::Device device) {
  const bool fresh = beginning.from.empty();
  auto ordinary =
      fresh ? std::move(beginning.fresh) : model::load_model(beginning.from, {.device = device, .pack = false});
  ordinary->set_name(fresh ? name : beginning.from.string());
  return ordinary;
}

// Loads a model that is not trained, named by its directory.
std::unique_ptr<model::TransformerModel> load_frozen(const fs::path& directory, const ModelPlace& place) {
  // A teacher of half precision needs its plain head, whose logits are not rounded.
  auto frozen =
      model::load_model(directory, {.device = place.device, .dtype = place.frozen, .pack = place.frozen == at::kFloat});
  frozen->set_name(directory.string());
  return frozen;
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

bool from_tandem(const fs::path& from) {
  return !from.empty() && model::kind_of_directory(from) == model::tandem_kind();
}

// Continues a Tandem: the secondary keeps its layer map and projections, but its block may change.
std::unique_ptr<model::TransformerModel> next_stage(const TandemTrainingOptions& options, const fs::path& from,
                                                    const fs::path& primary, at::Device device) {
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

// Starts from an ordinary model, which gives all parameters but the projections; its encoder is left out.
std::unique_ptr<model::TransformerModel> first_stage(const TandemTrainingOptions& options, Beginning& beginning,
                                                     const model::TransformerModel& primary) {
  const auto ordinary = ordinary_beginning(beginning, "the secondary", primary.info().device);
  const bool identity = options.projections == "identity";
  return model::make_tandem_secondary(
      *ordinary, primary,
      {.layer_map = options.layer_map,
       .block = options.block.value_or(2),
       .projections = identity ? model::ProjectionStart::kIdentity : model::ProjectionStart::kRandom,
       .seed = options.seed});
}

// Returns the primary's directory: the option, or the one that the Tandem directory `from` names. Errors: UserError if
// there is neither.
fs::path primary_of(const TandemTrainingOptions& options, const fs::path& from) {
  if (options.primary) return *options.primary;
  if (from_tandem(from)) return model::companion_directory(model::tandem_kind(), from);
  throw UserError({.where = "tandem.primary",
                   .what = "a secondary that is not yet part of a Tandem needs a primary",
                   .expected = "a model directory",
                   .found = "none given"});
}

bool from_drafter(const fs::path& from) {
  return !from.empty() && model::kind_of_directory(from) == model::shared_encoder_kind();
}

// Continues such a drafter, which keeps its projection.
std::unique_ptr<model::TransformerModel> next_stage(const SharedEncoderTrainingOptions& options, const fs::path& from,
                                                    const fs::path& target, at::Device device) {
  if (options.projection) {
    throw UserError({.where = "shared_encoder.projection",
                     .what = fmt::format("`from` is the drafter {}, which has a projection already", from.string()),
                     .expected = "none given",
                     .found = *options.projection});
  }
  return model::load_with_companion(model::shared_encoder_kind(), from, target, {.device = device, .pack = false});
}

}  // namespace

at::ScalarType frozen_type(const std::string& precision, at::Device device) {
  return precision == "bf16" && !device.is_cpu() ? at::kBFloat16 : at::kFloat;
}

bool is_same_model(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return fs::equivalent(one, other, error) || model::model_hash(one) == model::model_hash(other);
}

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

bool is_frozen_primary(const TandemTrainingOptions& options, const fs::path& from, const fs::path& model) {
  if (train::tandem_configurations().at(options.configuration) != train::TandemConfiguration::kPrimaryFrozen)
    return false;
  return is_same_model(primary_of(options, from), model);
}

TrainableModels tandem_trainable(const TandemTrainingOptions& options, Beginning beginning, const ModelPlace& place) {
  const fs::path& from = beginning.from;
  const fs::path directory = primary_of(options, from);
  const auto configuration = train::tandem_configurations().at(options.configuration);
  const bool frozen = configuration == train::TandemConfiguration::kPrimaryFrozen;
  auto primary =
      frozen ? load_frozen(directory, place) : model::load_model(directory, {.device = place.device, .pack = false});
  primary->set_name(directory.string());
  auto secondary = from_tandem(from) ? next_stage(options, from, directory, place.device)
                                     : first_stage(options, beginning, *primary);
  TrainableModels made;
  made.trainable = std::make_unique<train::TandemTrainable>(
      *secondary, *primary,
      train::TandemTrainableOptions{.configuration = configuration,
                                    .primary_directory = frozen ? directory : fs::path(),
                                    .copy_primary = options.copy_primary});
  made.models.push_back(std::move(secondary));
  made.models.push_back(std::move(primary));
  return made;
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

fs::path target_of(const SharedEncoderTrainingOptions& options, const fs::path& from) {
  if (options.target) return *options.target;
  if (from_drafter(from)) return model::companion_directory(model::shared_encoder_kind(), from);
  throw UserError({.where = "shared_encoder.target",
                   .what = "a drafter that does not share an encoder yet needs a target",
                   .expected = "a model directory",
                   .found = "none given"});
}

TrainableModels shared_encoder_trainable(const SharedEncoderTrainingOptions& options, Beginning beginning,
                                         const ModelPlace& place, bool teaches) {
  const fs::path directory = target_of(options, beginning.from);
  auto target = load_frozen(directory, place);
  std::unique_ptr<model::TransformerModel> drafter;
  if (from_drafter(beginning.from)) {
    drafter = next_stage(options, beginning.from, directory, place.device);
  } else {
    const auto ordinary = ordinary_beginning(beginning, "the drafter", place.device);
    const bool identity = options.projection == "identity";
    drafter = model::make_shared_encoder_drafter(
        *ordinary, *target,
        {identity ? model::ProjectionStart::kIdentity : model::ProjectionStart::kRandom, options.seed});
  }
  TrainableModels made;
  made.trainable = std::make_unique<train::SharedEncoderTrainable>(
      *drafter, *target, train::SharedEncoderOptions{.target_directory = directory, .teaches = teaches});
  made.models.push_back(std::move(drafter));
  made.models.push_back(std::move(target));
  return made;
}

}  // namespace draftsmith::recipes
