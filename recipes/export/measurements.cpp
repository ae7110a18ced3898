#include "recipes/export/measurements.h"

#include <map>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

bool same_directory(const std::string& named, const fs::path& model) {
  std::error_code error;
  return !named.empty() && fs::equivalent(named, model, error) && !error;
}

// Models of an evaluation by the names its runs use.
std::map<std::string, std::string> measured_models(const nlohmann::ordered_json& environment) {
  std::map<std::string, std::string> models;
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& directory) {
    if (directory.is_string()) models[name] = directory.get<std::string>();
  };
  if (environment.contains("model")) add("target", environment.at("model"));
  if (environment.contains("drafters") && environment.at("drafters").is_object()) {
    for (const auto& [name, directory] : environment.at("drafters").items()) add(name, directory);
  }
  return models;
}

bool uses(const evaluate::SettingResult& setting, const std::string& name) {
  if (name == "target") return true;
  for (const char* key : {"drafter", "model"}) {
    const auto found = setting.params.find(key);
    if (found != setting.params.end() && *found == name) return true;
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

evaluate::Results measurements_of(const fs::path& results, const fs::path& model) {
  evaluate::Results measured = evaluate::load_results(results);
  const auto models = measured_models(measured.environment);
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
  for (evaluate::TaskResult& task : measured.tasks) {
    std::erase_if(task.settings, [&](const auto& setting) { return !uses(setting, name); });
  }
  std::erase_if(measured.tasks, [](const auto& task) { return task.settings.empty(); });
  return measured;
}

}  // namespace draftsmith::recipes
