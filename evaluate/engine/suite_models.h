// Models and drafters of a suite by the names that its settings use, and the coder of its task lines. Both are parts of
// the evaluation engine (evaluate/engine/engine.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/error.h"
#include "data/chat/chat_template.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/registry.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "infer/loop/processors.h"
#include "infer/routers.h"
#include "infer/self_drafting/methods.h"
#include "model/models/language_models.h"
#include "model/models/router.h"

namespace draftsmith::evaluate {

// Coder of task lines with the target's tokenizer. It reads the chat template once, when a task asks for it. Refers to
// the target.
class LineCoder {
 public:
  explicit LineCoder(const infer::LoadedModel& target) : target_(target) {}

  // Returns the ids of a source line, like Engine::encode(), but does not check the room in the context.
  std::vector<int64_t> prompt(const std::string& source, const TaskOptions& task, bool& cut) const {
    auto [prompt, end] = whole(source, task);
    const auto room = task.max_source_tokens - std::ssize(end);
    if (task.max_source_tokens > 0 && room < 1) {
      throw UserError({.where = "",
                       .what = "max_source_tokens leaves no room for the source",
                       .expected = fmt::format("more than {} tokens: its suffix and EOS", end.size()),
                       .found = fmt::format("{}", task.max_source_tokens),
                       .hint = ""});
    }
    cut = task.max_source_tokens > 0 && std::ssize(prompt) > room;
    if (cut) prompt.resize(static_cast<size_t>(room));
    append(end, prompt);
    return prompt;
  }

  std::vector<int64_t> rest(const std::string& source, const TaskOptions& task) const {
    if (target_.model->info().encoder_decoder || task.max_source_tokens == 0) return {};
    auto [text, end] = whole(source, task);
    if (!end.empty() || std::ssize(text) <= task.max_source_tokens) return {};
    text.erase(text.begin(), text.begin() + task.max_source_tokens);
    if (!task.ids) text.push_back(tokenizer().eos());
    return text;
  }

  std::vector<int64_t> output(const std::string& reference, const TaskOptions& task) const {
    std::vector<int64_t> ids;
    if (!task.ids) {
      const data::Tokenizer& pieces = tokenizer();
      const bool whole = target_.model->info().encoder_decoder;
      if (whole) append(pieces.frames().target.before, ids);
      append(whole ? pieces.encode_target(reference) : pieces.encode(reference), ids);
      ids.push_back(pieces.eos());
      return ids;
    }
    ids = data::parse_token_ids(reference, target_.model->info().vocabulary, "", kOwnIds);
    if (!ids.empty() && is_eos(ids.back())) return ids;
    const auto& eos = target_.generation.eos_ids;
    if (!eos.empty()) ids.push_back(eos.front());
    return ids;
  }

  std::string text(const std::vector<int64_t>& generated, bool ids) const {
    if (!ids) return infer::text_of_known(tokenizer(), generated);
    auto shown = generated;
    if (!shown.empty() && is_eos(shown.back())) shown.pop_back();
    return fmt::format("{}", fmt::join(shown, " "));
  }

 private:
  static constexpr const char* kOwnIds = "ids = true needs ids made with the model's own tokenizer";

  template <class Ids>
  static void append(const Ids& ids, std::vector<int64_t>& prompt) {
    prompt.insert(prompt.end(), ids.begin(), ids.end());
  }

  bool is_eos(int64_t id) const {
    const auto& eos = target_.model->info().eos;
    return std::find(eos.begin(), eos.end(), id) != eos.end();
  }

  const data::Tokenizer& tokenizer() const { return infer::tokenizer_of(target_, "tasks with ids = true need none"); }

  // Source before it is cut, and the end that a cut keeps: suffix and EOS.
  struct Whole {
    std::vector<int64_t> text;
    std::vector<int64_t> end;
  };

  Whole whole(const std::string& source, const TaskOptions& task) const {
    const auto& info = target_.model->info();
    Whole whole;
    if (task.ids) {
      whole.text = data::parse_token_ids(source, info.vocabulary, "", kOwnIds);
      if (!whole.text.empty() && is_eos(whole.text.back())) {
        whole.end.push_back(whole.text.back());
        whole.text.pop_back();
      }
      return whole;
    }
    const data::Tokenizer& pieces = tokenizer();
    if (task.chat || !task.messages.empty()) {
      append(data::encode_chat(pieces, chat().render(nlohmann::ordered_json::parse(source), true)), whole.text);
    } else {
      append(pieces.frames().source.before, whole.text);
      append(pieces.encode(source), whole.text);
    }
    if (!task.suffix.empty()) append(pieces.encode(task.suffix), whole.end);
    if (info.encoder_decoder) whole.end.push_back(pieces.eos());
    return whole;
  }

  data::ChatTemplate& chat() const {
    if (!chat_) chat_ = data::load_chat_template(target_.directory);
    return *chat_;
  }

  const infer::LoadedModel& target_;
  mutable std::optional<data::ChatTemplate> chat_;
};

// Models and drafters by the names that settings use, loaded once, with their exits and routers.
class SuiteModels {
 public:
  // Loads target and drafters. Errors: UserError (load_drafter()).
  explicit SuiteModels(const SuiteOptions& options) {
    const model::LoadOptions load{.device = choose_device(options.device, "device"),
                                  .dtype = parse_dtype(options.dtype, "dtype")};
    loaded_[kTargetName] = infer::load_model_drafter(options.model, load, options);
    for (const auto& drafter : options.drafter) {
      model::LoadOptions own = load;
      if (drafter.dtype) own.dtype = parse_dtype(*drafter.dtype, "drafter.dtype");
      loaded_[drafter.name] = infer::load_drafter(drafter.spec(), options.model, own);
    }
    const auto decodes = [&](const std::string& name) {
      const auto found = loaded_.find(name);
      if (found != loaded_.end() && found->second->model() != nullptr) decoding_.insert(name);
    };
    decodes(kTargetName);
    for (const SettingGrid& grid : options.run) decodes(grid.model);
    for (const MatchRateTable& rates : options.match_rates) decodes(rates.model);
  }

  // Returns a model that decodes: the target, or a drafter that can decode alone (require_alone). The name must exist.
  const infer::LoadedModel& model(const std::string& name) const { return *loaded_.at(name)->standalone(); }
  const infer::LoadedModel& target() const { return model(kTargetName); }

  // Reports a problem at `where` for a drafter that cannot decode alone. Returns whether all is well.
  bool require_alone(const std::string& name, const std::string& where, Problems& problems) const {
    if (loaded_.at(name)->standalone() != nullptr) return true;
    problems.add({where, "the drafter " + name + " has no encoder of its own, so it does not decode alone",
                  "the target, or a drafter that is an ordinary model", loaded_.at(name)->name(),
                  "its training stage measures it alone: validation.bleu_examples"});
    return false;
  }

  // Returns the model of that name with its exits, or with the exits in directory `given`. Loads exits on first use.
  // Errors: UserError (find_exits()).
  infer::GenerationModels with_exits(const std::string& name, const std::filesystem::path& given) {
    infer::GenerationModels models = model(name).alone();
    models.exits = exits_of(name, given);
    return models;
  }

  // Returns the setting's model, drafter and router. Exits are included if the setting reads the model's layers early.
  // Errors: UserError (find_exits()), and for a router of another drafter.
  infer::GenerationModels of(const Setting& run) {
    const infer::SharedDrafter drafter = run.drafter.empty() ? nullptr : loaded_.at(run.drafter);
    const bool reads_exits = run.inside() || (drafter != nullptr && drafter->inside_target() > 0);
    infer::GenerationModels models = reads_exits ? with_exits(run.model, run.decode.exits) : model(run.model).alone();
    models.drafter = drafter;
    if (run.decode.drafts_inside()) {
      models.drafter = infer::exit_drafter(infer::exit_layer_of(run.decode, models.exits));
    }
    models.router = router_of(run);
    return models;
  }

  // Requires that the prompt and the new tokens fit into the context of every model that decodes, and that every model
  // predicts what follows the prompt, since methods are compared on equal outputs. Errors: UserError with an empty
  // `where`.
  void require_room(int64_t prompt, int64_t new_tokens) const {
    if (target().model->info().encoder_decoder) return;
    for (const auto& [name, loaded] : loaded_) {
      if (loaded->model() != nullptr) infer::require_length(*loaded->model(), prompt, "");
      const int64_t context = decoding_.contains(name) ? loaded->model()->info().max_positions : 0;
      if (context == 0 || prompt + new_tokens <= context) continue;
      throw UserError({.where = "",
                       .what = "the prompt and the new tokens don't fit into the context of " + name,
                       .expected = fmt::format("at most {} prompt tokens, with max_new_tokens = {}",
                                               std::max<int64_t>(0, context - new_tokens), new_tokens),
                       .found = fmt::format("{} prompt tokens", prompt),
                       .hint = "set the task's max_source_tokens, which cuts prompts, or lower max_new_tokens"});
    }
  }

  // Returns the number of parameters of each model by its name.
  nlohmann::ordered_json parameters() const {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const auto& [name, loaded] : loaded_) {
      if (loaded->model() != nullptr) json[name] = model::count_numbers(*loaded->model());
    }
    return json;
  }

  // Returns a text with the sizes and times of all files loaded so far.
  std::string fingerprint() const {
    std::string text;
    for (const auto& [name, loaded] : loaded_) text += "; " + name + " " + infer::fingerprint_of(loaded->path());
    for (const auto& entry : routers_) text += "; " + infer::fingerprint_of(std::get<0>(entry.first));
    for (const auto& [key, exits] : exits_) {
      const auto& [name, given] = key;
      if (exits)
        text += "; " + infer::fingerprint_of(given.empty() ? model::exits_directory(model(name).directory) : given);
    }
    return text;
  }

 private:
  const model::Exits* exits_of(const std::string& name, const std::filesystem::path& given) {
    const auto key = std::pair(name, given);
    const auto found = exits_.find(key);
    if (found != exits_.end()) return found->second.get();
    const infer::LoadedModel& loaded = model(name);
    return exits_.emplace(key, infer::find_exits(loaded.directory, *loaded.model, given)).first->second.get();
  }

  // Returns the router, bound to the setting's drafter, or null for a setting without one.
  const model::RouterPredictor* router_of(const Setting& run) {
    if (run.decode.router.empty() || run.drafter.empty()) return nullptr;
    const std::tuple key(run.decode.router, run.model, run.drafter);
    const auto found = routers_.find(key);
    if (found != routers_.end()) return found->second.get();
    auto router = infer::load_router(run.decode.router, loaded_.at(run.drafter).get(), model(run.model).model.get(),
                                     "run.router", run.drafter);
    return routers_.try_emplace(key, std::move(router)).first->second.get();
  }

  std::map<std::string, infer::SharedDrafter> loaded_;  // by name; includes the target
  std::set<std::string> decoding_;                      // names of the models that write texts
  std::map<std::pair<std::string, std::filesystem::path>, std::unique_ptr<model::Exits>> exits_;  // null: no exits
  // By directory, model and drafter.
  std::map<std::tuple<std::filesystem::path, std::string, std::string>, std::unique_ptr<model::RouterPredictor>>
      routers_;
};

}  // namespace draftsmith::evaluate
