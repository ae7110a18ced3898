#include "recipes/export/measurements.h"

#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "recipes/results_file.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

bool same_directory(const std::string& named, const fs::path& model) {
  std::error_code error;
  return !named.empty() && fs::equivalent(named, model, error) && !error;
}

// Models of an evaluation by the names its runs use.
std::map<std::string, std::string> measured_models(const nlohmann::json& environment) {
  std::map<std::string, std::string> models;
  const auto add = [&](const std::string& name, const nlohmann::json& directory) {
    if (directory.is_string()) models[name] = directory.get<std::string>();
  };
  if (environment.contains("model")) add("target", environment.at("model"));
  if (environment.contains("drafters") && environment.at("drafters").is_object()) {
    for (const auto& [name, directory] : environment.at("drafters").items()) add(name, directory);
  }
  return models;
}

bool uses(const nlohmann::json& run, const std::string& name) {
  if (name == "target") return true;
  const auto params = run.find("params");
  if (params == run.end() || !params->is_object()) return false;
  for (const char* key : {"drafter", "model"}) {
    if (const auto found = params->find(key); found != params->end() && *found == name) return true;
  }
  return false;
}

std::string directories(const std::map<std::string, std::string>& models) {
  std::string text;
  for (const auto& [name, directory] : models)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", name, directory);
  return text.empty() ? "no models" : text;
}

}  // namespace

CardMeasurements measurements_of(const fs::path& results, const fs::path& model) {
  const nlohmann::json json = load_results(results);
  const auto models = measured_models(json.at("environment"));
  std::string name;
  for (const auto& [candidate, directory] : models) {
    if (same_directory(directory, model)) name = candidate;
  }
  if (name.empty()) {
    throw UserError({.where = results.string(),
                     .what = "this evaluation does not measure the model that is exported",
                     .expected = model.string() + " among its target and drafters",
                     .found = directories(models),
                     .hint = "give the results of an evaluation with this model, or leave --results out"});
  }
  CardMeasurements measured{.environment = json.at("environment"), .tasks = nlohmann::json::array()};
  for (nlohmann::json task : json.at("tasks")) {
    auto& runs = task.at("runs");
    for (size_t i = runs.size(); i > 0; --i) {
      if (!uses(runs.at(i - 1), name)) runs.erase(i - 1);
    }
    if (!runs.empty()) measured.tasks.push_back(std::move(task));
  }
  return measured;
}

}  // namespace draftsmith::recipes
