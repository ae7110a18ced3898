#include "evaluate/engine/suite_models.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/device.h"
#include "infer/drafters/early_exit_loading.h"
#include "infer/drafters/model_drafter.h"
#include "infer/inside_methods.h"
#include "infer/prompts.h"
#include "infer/routers.h"
#include "model/kinds/language_models.h"

namespace draftsmith::evaluate {

namespace fs = std::filesystem;

SuiteModels::SuiteModels(const SuiteOptions& options) {
  const model::LoadOptions load{.device = choose_device(options.device, "device"),
                                .dtype = parse_weight_type(options.dtype, "dtype")};
  loaded_[kTargetName] = infer::load_model_drafter(options.model, load);
  for (const auto& drafter : options.drafter) {
    model::LoadOptions own = load;
    if (drafter.dtype) own.dtype = parse_weight_type(*drafter.dtype, "drafter.dtype");
    loaded_[drafter.name] = infer::load_drafter(drafter.spec(), options.model, own);
  }
}

bool SuiteModels::require_alone(const std::string& name, const std::string& where, Problems& problems) const {
  if (loaded_.at(name)->standalone() != nullptr) return true;
  problems.add({where, "the drafter " + name + " has no encoder of its own, so it does not decode alone",
                "the target, or a drafter that is an ordinary model", loaded_.at(name)->name(),
                "its training stage measures it alone: validation.bleu_examples"});
  return false;
}

infer::GenerationModels SuiteModels::with_exits(const std::string& name, const fs::path& given) {
  infer::GenerationModels models = without_exits(name);
  models.exits = exits_of(name, given);
  return models;
}

infer::GenerationModels SuiteModels::without_exits(const std::string& name) const {
  const infer::LoadedModel& loaded = model(name);
  infer::GenerationModels models;
  models.target = loaded.model.get();
  models.generation = loaded.generation;
  models.target_tokenizer = loaded.tokenizer.get();
  return models;
}

infer::GenerationModels SuiteModels::of(const Setting& run) {
  const infer::SharedDrafter drafter = run.drafter.empty() ? nullptr : loaded_.at(run.drafter);
  const bool reads_exits = run.inside() || (drafter != nullptr && drafter->inside_target() > 0);
  infer::GenerationModels models = reads_exits ? with_exits(run.model, run.decode.exits) : without_exits(run.model);
  models.drafter = drafter;
  if (run.decode.drafts_inside()) {
    models.drafter = infer::exit_drafter(infer::exit_layer_of(run.decode, models.exits));
  }
  models.router = router_of(run);
  return models;
}

const model::Exits* SuiteModels::exits_of(const std::string& name, const fs::path& given) {
  const auto key = std::pair(name, given);
  const auto found = exits_.find(key);
  if (found != exits_.end()) return found->second.get();
  const infer::LoadedModel& loaded = model(name);
  return exits_.emplace(key, infer::find_exits(loaded.directory, *loaded.model, given)).first->second.get();
}

// Returns the router, bound to the setting's drafter, or null for a setting without one.
const model::RouterPredictor* SuiteModels::router_of(const Setting& run) {
  if (run.decode.router.empty() || run.drafter.empty()) return nullptr;
  const auto key = std::pair(run.decode.router, run.drafter);
  const auto found = routers_.find(key);
  if (found != routers_.end()) return found->second.get();
  auto router = infer::load_router(run.decode.router, loaded_.at(run.drafter).get(), "run.router", run.drafter);
  return routers_.try_emplace(key, std::move(router)).first->second.get();
}

void SuiteModels::require_room(int64_t prompt, int64_t new_tokens) const {
  if (target().model->info().encoder_decoder) return;
  for (const auto& [name, loaded] : loaded_) {
    if (loaded->model() != nullptr) infer::require_length(*loaded->model(), prompt, "");
    const int64_t context = loaded->model() != nullptr ? loaded->model()->info().max_positions : 0;
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
  for (const auto& [name, loaded] : loaded_) {
    if (loaded->model() != nullptr) json[name] = model::count_numbers(*loaded->model());
  }
  return json;
}

std::string SuiteModels::fingerprint() const {
  std::string text;
  for (const auto& [name, loaded] : loaded_) text += "; " + name + " " + infer::fingerprint_of(loaded->path());
  for (const auto& entry : routers_) text += "; " + infer::fingerprint_of(entry.first.first);
  for (const auto& [key, exits] : exits_) {
    const auto& [name, given] = key;
    if (exits)
      text += "; " + infer::fingerprint_of(given.empty() ? model::exits_directory(model(name).directory) : given);
  }
  return text;
}

}  // namespace draftsmith::evaluate
