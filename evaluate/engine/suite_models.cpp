#include "evaluate/engine/suite_models.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "infer/inside_methods.h"
#include "model/transformer/parameters.h"

namespace draftsmith::evaluate {

namespace fs = std::filesystem;

SuiteModels::SuiteModels(const SuiteOptions& options) {
  const model::LoadOptions load_options{.device = choose_device(options.device, "device"),
                                        .dtype = parse_dtype(options.dtype, "dtype")};
  models_["target"] = infer::load_evaluated(options.model, load_options);
  for (const auto& drafter : options.drafter) {
    models_[drafter.name] = infer::load_drafter(drafter.source(), options.model, load_options);
  }
}

infer::GenerationModels SuiteModels::with_exits(const std::string& name, const fs::path& given) {
  const infer::LoadedModel& model = at(name);
  infer::GenerationModels models;
  models.target = model.model.get();
  models.generation = model.generation;
  models.target_tokenizer = model.tokenizer.get();
  models.exits = exits_of(name, given);
  return models;
}

infer::GenerationModels SuiteModels::of(const Setting& run) {
  const bool exit_drafts = !run.drafter.empty() && at(run.drafter).exit_layer > 0;
  infer::GenerationModels models;
  if (run.inside() || exit_drafts) {
    models = with_exits(run.model, run.decode.exits);
  } else {
    const infer::LoadedModel& model = at(run.model);
    models.target = model.model.get();
    models.generation = model.generation;
    models.target_tokenizer = model.tokenizer.get();
  }
  if (!run.drafter.empty()) infer::set_drafter(at(run.drafter), models);
  infer::place_drafter(models, run.decode);
  models.router = router_of(run);
  return models;
}

const model::Exits* SuiteModels::exits_of(const std::string& name, const fs::path& given) {
  const auto key = std::pair(name, given);
  const auto found = exits_.find(key);
  if (found != exits_.end()) return found->second.get();
  return exits_.emplace(key, infer::find_exits(at(name).directory, *at(name).model, given)).first->second.get();
}

// Bound to the run's drafter; null for runs without a router.
const model::RouterPredictor* SuiteModels::router_of(const Setting& run) {
  if (run.decode.router.empty() || run.drafter.empty()) return nullptr;
  const auto key = std::pair(run.decode.router, run.drafter);
  const auto found = routers_.find(key);
  if (found != routers_.end()) return &found->second;
  const model::Router router = model::load_router(run.decode.router);
  const infer::LoadedModel& drafter = at(run.drafter);
  if (!drafter.model) {
    throw UserError({"run.router", "a router is for drafters that are models", "a model or a Tandem secondary",
                     "drafter " + run.drafter, "use the window fixed"});
  }
  model::require_router_fits(router, run.decode.router, {drafter.directory, *drafter.model});
  return &routers_.try_emplace(key, router, *drafter.model).first->second;
}

void SuiteModels::require_room(int64_t prompt, int64_t new_tokens) const {
  if (target().model->info().encoder_decoder) return;
  for (const auto& [name, loaded] : models_) {
    const int64_t context = loaded.model ? loaded.model->info().max_positions : 0;
    if (context == 0 || prompt + new_tokens <= context) continue;
    throw UserError({.where = "",
                     .what = "the prompt and the new tokens don't fit into the context of " + name,
                     .expected = fmt::format("at most {} prompt tokens, with max_new_tokens = {}",
                                             std::max<int64_t>(0, context - new_tokens), new_tokens),
                     .found = fmt::format("{} prompt tokens", prompt),
                     .hint = "set the task's max_source_tokens, which cuts prompts, or lower max_new_tokens"});
  }
}

nlohmann::ordered_json SuiteModels::parameters() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, loaded] : models_) {
    if (loaded.model) json[name] = model::count_numbers(loaded.model->config());
  }
  return json;
}

std::string SuiteModels::fingerprint() const {
  std::string text;
  for (const auto& [name, loaded] : models_) text += "; " + name + " " + infer::fingerprint_of(loaded.directory);
  for (const auto& entry : routers_) text += "; " + infer::fingerprint_of(entry.first.first);
  for (const auto& [key, exits] : exits_) {
    const auto& [name, given] = key;
    if (exits) text += "; " + infer::fingerprint_of(given.empty() ? model::exits_directory(at(name).directory) : given);
  }
  return text;
}

}  // namespace draftsmith::evaluate
