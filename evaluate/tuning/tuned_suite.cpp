#include "evaluate/tuning/tuned_suite.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "base/toml.h"
#include "evaluate/router_tuning.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Gives a key of the table a value as options_to_json() writes it.
void assign(toml::table& table, const std::string& key, const ordered_json& value) {
  if (value.is_boolean()) {
    table.insert_or_assign(key, value.get<bool>());
  } else if (value.is_number_integer()) {
    table.insert_or_assign(key, value.get<int64_t>());
  } else if (value.is_number()) {
    table.insert_or_assign(key, value.get<double>());
  } else if (value == "inf") {
    table.insert_or_assign(key, std::numeric_limits<double>::infinity());
  } else {
    table.insert_or_assign(key, value.get<std::string>());
  }
}

// Returns the run's table with the values of one setting in place of lists.
toml::table run_of(toml::table run, const Setting& setting) {
  run.erase("choose_on");
  run.erase("max_drop");
  if (run.contains("drafter")) run.insert_or_assign("drafter", toml::array{setting.drafter});
  for (const Field& field : OptionLists<DecodeOptions>::fields().all()) {
    const toml::node* given = run.get(field.name);
    if (field.grid != GridKey::kList || given == nullptr || !given->is_array()) continue;
    assign(run, field.name, field_json(field, &setting.decode));
  }
  return run;
}

// Returns the table of a run that has nothing to tune.
toml::table untuned(toml::table run) {
  run.erase("choose_on");
  run.erase("max_drop");
  return run;
}

// Returns the tables of the suite's runs.
toml::array tuned_runs(const toml::array& runs, const TuningResult& result) {
  toml::array tuned;
  for (size_t i = 0; i < runs.size(); ++i) {
    const toml::table& run = *runs[i].as_table();
    const auto of_run = std::ranges::count(result.chosen, i, &TunedSetting::run);
    if (of_run == 0) tuned.push_back(untuned(run));
    for (const TunedSetting& one : result.chosen) {
      if (one.run != i) continue;
      toml::table table = run_of(run, one.setting);
      if (of_run > 1 && table.contains("name")) table.insert_or_assign("name", one.setting.label);
      tuned.push_back(std::move(table));
    }
  }
  return tuned;
}

// Requires that the text is a suite with the chosen settings.
void require_chosen(const std::string& text, const TuningResult& result) {
  Problems problems;
  const auto suite = parse_options<SuiteOptions>(parse_toml(text, "the tuned suite"), "", problems);
  if (!problems.empty()) throw std::logic_error("the tuned suite is none: " + to_string(problems.list().front()));
  const std::vector<Setting> settings = expand_settings(with_router_defaults(suite));
  for (const TunedSetting& one : result.chosen) {
    const bool there = std::ranges::any_of(settings, [&](const Setting& setting) {
      return setting.drafter == one.setting.drafter && setting.method() == one.setting.method() &&
             setting.params() == one.setting.params();
    });
    if (!there) throw std::logic_error("the tuned suite lacks " + one.setting.label);
  }
}

}  // namespace

std::string tuned_suite(const toml::table& suite, const TuningResult& result, const std::string& head) {
  toml::table tuned = suite;
  tuned.insert_or_assign("run", tuned_runs(*suite.get_as<toml::array>("run"), result));
  toml::array tasks;
  for (const toml::node& task : *suite.get_as<toml::array>("task")) {
    const auto name = (*task.as_table())["name"].value<std::string>();
    if (name != result.task) tasks.push_back(*task.as_table());
  }
  tuned.insert_or_assign("task", std::move(tasks));
  std::ostringstream text;
  std::istringstream lines(head);
  for (std::string line; std::getline(lines, line);) text << (line.empty() ? "#" : "# " + line) << "\n";
  text << "\n" << toml::toml_formatter(tuned) << "\n";
  require_chosen(text.str(), result);
  return text.str();
}

}  // namespace draftsmith::evaluate
