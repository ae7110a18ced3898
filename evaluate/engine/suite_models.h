// The models and drafters of a suite, loaded once, by the names that its settings use, with their exits and routers.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"
#include "infer/load_models.h"
#include "model/kinds/router.h"

namespace draftsmith::evaluate {

class SuiteModels {
 public:
  // Loads target and drafters. Errors: UserError, those of load_drafter().
  explicit SuiteModels(const SuiteOptions& options);

  // Returns a model that decodes: "target", or a drafter that can decode alone; it must exist.
  const infer::LoadedModel& model(const std::string& name) const { return *loaded_.at(name)->standalone(); }
  const infer::LoadedModel& target() const { return model("target"); }
  // Returns the model of that name with its exits, or with those in the directory `given`. Exits are loaded when they
  // are first asked for. Errors: UserError, those of find_exits().
  infer::GenerationModels with_exits(const std::string& name, const std::filesystem::path& given);
  // Returns the setting's model with its drafter, with its exits where its own layers are read early, and its router.
  // Errors: UserError, those of find_exits(), and a router that is not the drafter's.
  infer::GenerationModels of(const Setting& run);

  // Methods are compared on equal outputs, so these must fit into the context of every model of the suite. Errors:
  // UserError with an empty `where`.
  void require_room(int64_t prompt, int64_t new_tokens) const;
  // Returns each model's number of parameters.
  nlohmann::ordered_json parameters() const;
  // Names the files of everything that was loaded so far, with sizes and times.
  std::string fingerprint() const;

 private:
  infer::GenerationModels without_exits(const std::string& name) const;
  const model::Exits* exits_of(const std::string& name, const std::filesystem::path& given);
  const model::RouterPredictor* router_of(const Setting& run);

  std::map<std::string, infer::SharedDrafter> loaded_;  // the target too, as the drafter that it could be
  std::map<std::pair<std::string, std::filesystem::path>, std::unique_ptr<model::Exits>> exits_;  // null: it has none
  std::map<std::pair<std::filesystem::path, std::string>, model::RouterPredictor> routers_;  // by directory and drafter
};

}  // namespace draftsmith::evaluate
