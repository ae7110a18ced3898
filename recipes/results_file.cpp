#include "recipes/results_file.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "metrics/registry.h"

namespace draftsmith::recipes {

namespace {

bool has(const nlohmann::json& object, const char* key, nlohmann::json::value_t type) {
  return object.is_object() && object.contains(key) && object.at(key).type() == type;
}

bool is_metric(const nlohmann::json& value) {
  const auto known = metrics::metric_names();
  return value.is_string() && std::find(known.begin(), known.end(), value.get<std::string>()) != known.end();
}

// What keeps a value from being a results.json; empty when nothing does.
std::string results_defect(const nlohmann::json& results) {
  using Type = nlohmann::json::value_t;
  if (!has(results, "suite", Type::string)) return "no name 'suite'";
  if (!has(results, "environment", Type::object)) return "no object 'environment'";
  if (!has(results, "tasks", Type::array)) return "no list 'tasks'";
  for (const auto& task : results.at("tasks")) {
    if (!has(task, "name", Type::string)) return "a task without 'name'";
    const std::string of = " of task '" + task.at("name").get<std::string>() + "'";
    if (task.contains("metric") && !is_metric(task.at("metric"))) return "no 'metric' that is known" + of;
    if (!has(task, "baseline", Type::object)) return "no object 'baseline'" + of;
    const auto& baseline = task.at("baseline");
    if (!baseline.empty() && !has(baseline, "name", Type::string)) return "a 'baseline' without 'name'" + of;
    if (!has(task, "runs", Type::array)) return "no list 'runs'" + of;
    for (const auto& run : task.at("runs")) {
      if (!has(run, "name", Type::string) || !has(run, "method", Type::string)) return "a run without 'name'" + of;
    }
  }
  return "";
}

}  // namespace

nlohmann::json load_results(const std::filesystem::path& file) {
  nlohmann::json results = load_json(file);
  if (const std::string defect = results_defect(results); !defect.empty()) {
    throw UserError({.where = file.string(),
                     .what = "is no results.json",
                     .expected = "what an evaluation writes: 'suite', 'environment' and a list 'tasks' with their runs",
                     .found = defect});
  }
  return results;
}

}  // namespace draftsmith::recipes
