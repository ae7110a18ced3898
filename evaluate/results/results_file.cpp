// Reader of results.json. It refuses values that no evaluation writes, with the defect's name.
#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

bool has(const ordered_json& object, const char* key, ordered_json::value_t type) {
  return object.is_object() && object.contains(key) && object.at(key).type() == type;
}

bool is_metric(const ordered_json& value) {
  const auto known = metrics::metric_names();
  return value.is_string() && std::find(known.begin(), known.end(), value.get<std::string>()) != known.end();
}

// Returns the defect of a value that is no results; empty for results.
std::string defect_of(const ordered_json& results) {
  using Type = ordered_json::value_t;
  if (!has(results, "suite", Type::string)) return "no name 'suite'";
  if (!results.contains("version")) return "no number 'version'";
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

UserError no_results(const std::string& where, const std::string& defect) {
  return UserError({.where = where,
                    .what = "is no results.json",
                    .expected = "what an evaluation writes: 'suite', 'environment' and a list 'tasks' with their runs",
                    .found = defect});
}

// Refuses files of another version, whose numbers may mean something else.
void refuse_other_versions(const ordered_json& results, const std::string& where, const std::string& what,
                           const std::string& hint) {
  if (!results.is_object() || !results.contains("version") || results.at("version") == kResultsVersion) return;
  throw UserError({.where = where,
                   .what = what,
                   .expected = "'version' " + std::to_string(kResultsVersion),
                   .found = results.at("version").dump(),
                   .hint = hint});
}

}  // namespace

Results results_from_json(const ordered_json& json, const std::string& where) {
  refuse_other_versions(json, where, "the results have another version", "evaluate again");
  if (const std::string defect = defect_of(json); !defect.empty()) throw no_results(where, defect);
  try {
    return read_results(json);
  } catch (const ordered_json::exception& error) {
    throw no_results(where, error.what());
  } catch (const InvalidValue& error) {
    throw no_results(where, error.what());
  }
}

Results load_results(const std::filesystem::path& file) {
  load_json(file);  // names the line of malformed JSON, but does not keep the order of keys
  return results_from_json(ordered_json::parse(read_file(file)), file.string());
}

void require_replaceable_results(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return;
  refuse_other_versions(ordered_json::parse(read_file(file), nullptr, false), file.string(),
                        "results of another version would be replaced", "name another directory for these results");
}

}  // namespace draftsmith::evaluate
