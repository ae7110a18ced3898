#include "recipes/stages/shared_encoder_training.h"

#include <fmt/format.h>

#include "model/kinds/shared_encoder.h"
#include "train/trainable/shared_encoder_trainable.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

bool from_drafter(const fs::path& from) {
  return !from.empty() && model::is_shared_encoder_directory(from);
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
  return model::load_shared_encoder(from, target, {.device = device, .pack = false});
}

}  // namespace

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
  if (from_drafter(from)) return model::shared_encoder_target(from);
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
