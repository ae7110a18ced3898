// Models and drafters of a suite by the names that its settings use, loaded once, with their exits and routers.
// Conversion of task lines to token ids of the target, and back.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/chat/chat_template.h"
#include "evaluate/engine/engine.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"
#include "infer/load_models.h"
#include "model/models/router.h"

namespace draftsmith::evaluate {

// Encoder of source lines. It reads the target's chat template once, when a task asks for it. Refers to the target.
class PromptEncoder {
 public:
  explicit PromptEncoder(const infer::LoadedModel& target) : target_(target) {}

  // Returns the ids of a source line, like Engine::encode(), but does not check the room in the context.
  Prompt prompt(const std::string& source, const TaskOptions& task, bool& cut) const;

  // Returns the ids of the text that was cut off a decoder-only model's prompt, see Engine::encode_continuation().
  std::vector<int64_t> rest(const std::string& source, const TaskOptions& task) const;

 private:
  // Source before it is cut, and the end that a cut keeps: suffix and EOS.
  struct Whole {
    Prompt text;
    Prompt end;
  };
  Whole whole(const std::string& source, const TaskOptions& task) const;
  data::ChatTemplate& chat() const;

  const infer::LoadedModel& target_;
  mutable std::optional<data::ChatTemplate> chat_;
};

// Returns the ids of a reference, EOS included.
std::vector<int64_t> encode_output(const infer::LoadedModel& target, const std::string& reference,
                                   const TaskOptions& task);

// Returns the text of generated ids. With `ids` it is the ids themselves without EOS.
std::string output_text(const infer::LoadedModel& target, const std::vector<int64_t>& generated, bool ids);

class SuiteModels {
 public:
  // Loads target and drafters. Errors: UserError (load_drafter()).
  explicit SuiteModels(const SuiteOptions& options);

  // Returns a model that decodes: the target, or a drafter that can decode alone (require_alone). The name must exist.
  const infer::LoadedModel& model(const std::string& name) const { return *loaded_.at(name)->standalone(); }
  // Reports a problem at `where` for a drafter that cannot decode alone. Returns whether all is well.
  bool require_alone(const std::string& name, const std::string& where, Problems& problems) const;
  const infer::LoadedModel& target() const { return model(kTargetName); }
  // Returns the model of that name with its exits, or with the exits in directory `given`. Loads exits on first use.
  // Errors: UserError (find_exits()).
  infer::GenerationModels with_exits(const std::string& name, const std::filesystem::path& given);
  // Returns the setting's model, drafter and router. Exits are included if the setting reads the model's layers early.
  // Errors: UserError (find_exits()), and for a router of another drafter.
  infer::GenerationModels of(const Setting& run);

  // Requires that the prompt and the new tokens fit into the context of every model, and that every model predicts what
  // follows the prompt, since methods are compared on equal outputs. Errors: UserError with an empty `where`.
  void require_room(int64_t prompt, int64_t new_tokens) const;
  // Returns the number of parameters of each model by its name.
  nlohmann::ordered_json parameters() const;
  // Returns a text with the sizes and times of all files loaded so far.
  std::string fingerprint() const;

 private:
  infer::GenerationModels without_exits(const std::string& name) const;
  const model::Exits* exits_of(const std::string& name, const std::filesystem::path& given);
  const model::RouterPredictor* router_of(const Setting& run);

  std::map<std::string, infer::SharedDrafter> loaded_;  // by name; includes the target
  std::map<std::pair<std::string, std::filesystem::path>, std::unique_ptr<model::Exits>> exits_;  // null: no exits
  // By directory and drafter.
  std::map<std::pair<std::filesystem::path, std::string>, std::unique_ptr<model::RouterPredictor>> routers_;
};

}  // namespace draftsmith::evaluate
