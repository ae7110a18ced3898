// The models of a suite, loaded once, by the names that its runs use, with their exits and routers.
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
  // Loads target and drafters. Errors: UserError, those of load_evaluated() and load_drafter().
  explicit SuiteModels(const SuiteOptions& options);

  // "target" or a drafter's name; must exist.
  const infer::LoadedModel& at(const std::string& name) const { return models_.at(name); }
  const infer::LoadedModel& target() const { return at("target"); }
  // The model of that name with its exits, or those in a directory given; loaded when first asked for. Errors:
  // UserError, those of find_exits().
  infer::GenerationModels with_exits(const std::string& name, const std::filesystem::path& given);
  // The run's model with what drafts for it, its exits where layers of its own are read early, and its router. Errors:
  // UserError: the same, and a router that is not the drafter's.
  infer::GenerationModels of(const Setting& run);

  // Methods are compared on equal outputs, so these must fit into the context of every model of the suite. Errors:
  // UserError with an empty `where`.
  void require_room(int64_t prompt, int64_t new_tokens) const;
  // Of each model its number of parameters.
  nlohmann::ordered_json parameters() const;
  // Of everything loaded so far.
  std::string fingerprint() const;

 private:
  const model::Exits* exits_of(const std::string& name, const std::filesystem::path& given);
  const model::RouterPredictor* router_of(const Setting& run);

  std::map<std::string, infer::LoadedModel> models_;
  std::map<std::pair<std::string, std::filesystem::path>, std::unique_ptr<model::Exits>> exits_;  // null: it has none
  std::map<std::pair<std::filesystem::path, std::string>, model::RouterPredictor> routers_;  // by directory and drafter
};

}  // namespace draftsmith::evaluate
