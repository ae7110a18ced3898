#include "evaluate/router_tuning.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "infer/windows/router.h"
#include "model/kinds/router.h"

namespace draftsmith::evaluate {

namespace {

namespace fs = std::filesystem;

// Returns whether a router's threshold decides.
bool asks_router(const DecodeOptions& decode) {
  return decode.drafts() && decode.window_rule_name() == infer::RouterWindow::kind().name;
}

bool run_asks_router(const SettingGrid& run) {
  return asks_router(run.decode);
}

// Returns the task on which routers are tuned whose own runs name none: the task of other runs, routers' runs first.
std::string usual_task(const SuiteOptions& options) {
  for (const bool routers : {true, false}) {
    for (const SettingGrid& run : options.run) {
      if (!run.choose_on.empty() && run_asks_router(run) == routers) return run.choose_on;
    }
  }
  return "";
}

bool lossless(const Setting& setting) {
  return setting.follows_target();
}

// Returns whether all settings of a run are lossless: its lists change neither method nor acceptance.
bool lossless(const SettingGrid& run) {
  Setting setting;
  setting.model = run.model;
  setting.decode = run.decode;
  return lossless(setting);
}

// Returns whether settings of the run can be chosen on the task: it has a metric, or none of them loses quality.
bool can_choose(const SuiteOptions& options, const SettingGrid& run, const std::string& task) {
  const auto settings = expand_grid(run);
  return std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.follows_target(); }) ||
         std::any_of(options.task.begin(), options.task.end(),
                     [&](const TaskOptions& one) { return one.name == task && one.metric.scored(); });
}

// Returns whether a run, or a setting of it, tunes its router.
template <class RunOrSetting>
bool tunes(const RunOrSetting& one) {
  return asks_router(one.decode) && !one.choose_on.empty() && lossless(one);
}

// Names the routers' copies. `runs` are the names of the runs that tune them.
void name_copies(const std::vector<std::string>& runs, std::vector<TunedRouter>& routers, Problems& problems) {
  std::set<std::string> places;
  for (size_t i = 0; i < routers.size(); ++i) {
    const auto of_drafter = std::count_if(routers.begin(), routers.end(),
                                          [&](const TunedRouter& one) { return one.drafter == routers[i].drafter; });
    std::string place = "router";
    if (routers.size() > 1) place.append(".").append(file_safe(routers[i].drafter));
    if (of_drafter > 1 && !runs[i].empty()) place.append(".").append(file_safe(runs[i]));
    if (!places.insert(place).second) {
      problems.add({"run.name", "the tuned copies of two routers would have the same name",
                    "runs of different names for routers of the same drafter", place,
                    "give each of the runs a 'name'"});
    }
    routers[i].place = place;
  }
}

// Returns the routers that a suite tunes, each with one drafter, in the order of its runs, without measurements.
std::vector<TunedRouter> routers_to_tune(const SuiteOptions& suite, Problems& problems) {
  std::vector<TunedRouter> routers;
  std::vector<std::string> runs;  // name of the first run of each router
  for (const SettingGrid& run : suite.run) {
    if (!tunes(run)) continue;
    for (const std::string& drafter : run.drafter) {
      const auto same = std::find_if(routers.begin(), routers.end(), [&](const TunedRouter& one) {
        return one.router == run.decode.router && one.drafter == drafter;
      });
      if (same == routers.end()) {
        TunedRouter& added = routers.emplace_back();
        added.router = run.decode.router;
        added.drafter = drafter;
        added.task = run.choose_on;
        runs.push_back(run.name);
      } else if (same->task != run.choose_on) {
        problems.add({"run.choose_on", "a router is tuned on one task, and two runs tune " + run.decode.router.string(),
                      same->task, run.choose_on, "choose on the same task in both runs"});
      }
    }
  }
  name_copies(runs, routers, problems);
  return routers;
}

void require_tunable(const SuiteOptions& options) {
  if (options.task.empty()) {
    throw UserError({"task", "a suite needs a task", "at least one [[task]]", "none", ""});
  }
  if (std::none_of(options.run.begin(), options.run.end(), run_asks_router)) {
    throw UserError({.where = "tune_router",
                     .what = "there is no router to tune",
                     .expected = "a [[run]] with window_rule = \"router\" and router = \"DIR\"",
                     .found = "none",
                     .hint = "add one, or leave --tune-router out"});
  }
  if (!usual_task(options).empty()) return;
  throw UserError({.where = "run.choose_on",
                   .what = "a router is tuned on validation data, and no run says which task that is",
                   .expected = "choose_on = \"TASK\" in the router's run",
                   .found = "none",
                   .hint = "what is tuned on the test data does not say how fast it decodes other data"});
}

// Adds a problem for each router that no run tunes.
void require_tuned(const SuiteOptions& suite, const std::vector<TunedRouter>& routers, Problems& problems) {
  for (const SettingGrid& run : suite.run) {
    if (!run_asks_router(run)) continue;
    const bool tuned = std::any_of(routers.begin(), routers.end(),
                                   [&](const TunedRouter& one) { return one.router == run.decode.router; });
    if (tuned) continue;
    problems.add({"tune_router", "no run can tune the router " + run.decode.router.string(),
                  "a run whose outputs are the target's, greedy or sampled (acceptance exact or rejection)",
                  "run " + (run.name.empty() ? run.decode.method : run.name),
                  "add such a run, or leave --tune-router out"});
  }
}

// Returns a setting's conditions. Routers are tuned for the least of them.
std::tuple<double, int64_t> conditions(const TunedRouter& one) {
  return {one.temperature, one.num_samples};
}

void merge(TunedRouter& best, const TunedRouter& other) {
  if (best.settings > 0 && conditions(other) > conditions(best)) return;
  if (best.settings == 0 || conditions(other) < conditions(best)) {
    best = other;
    return;
  }
  const double slowest = std::min(best.slowest, other.slowest);
  const int64_t settings = best.settings + 1;
  if (other.tokens_per_second > best.tokens_per_second) best = other;
  best.slowest = slowest;
  best.settings = settings;
}

// Returns the result of a setting on a task, or nullptr.
const SettingResult* find_result(const Results& results, const std::string& task, const std::string& label) {
  for (const TaskResult& measured : results.tasks) {
    if (measured.name == task) return measured.find(label);
  }
  return nullptr;
}

}  // namespace

SuiteOptions with_router_defaults(const SuiteOptions& options) {
  SuiteOptions suite = options;
  for (SettingGrid& run : suite.run) {
    auto& thresholds = run.lists[&DecodeOptions::threshold];
    auto& longest = run.lists[&DecodeOptions::max_draft];
    if (!run_asks_router(run) || (!thresholds.empty() && !longest.empty())) continue;
    if (run.decode.router.empty() || !model::is_router(run.decode.router)) continue;
    const model::RouterConfig config = model::load_router(run.decode.router).config();
    if (thresholds.empty()) thresholds = {config.threshold};
    if (longest.empty()) longest = {config.max_draft};
  }
  return suite;
}

SuiteOptions with_tuning_grids(const SuiteOptions& options) {
  require_tunable(options);
  SuiteOptions suite = options;
  const std::string usual = usual_task(options);
  for (SettingGrid& run : suite.run) {
    if (!run_asks_router(run) || !lossless(run)) continue;
    const std::string task = run.choose_on.empty() ? usual : run.choose_on;
    if (!can_choose(options, run, task)) continue;
    run.choose_on = task;
    auto& thresholds = run.lists[&DecodeOptions::threshold];
    auto& longest = run.lists[&DecodeOptions::max_draft];
    if (thresholds.empty()) thresholds = {0.3, 0.5, 0.6, 0.7, 0.8, 0.9};
    if (longest.empty()) longest = {4, 8, 16};
  }
  Problems problems;
  require_tuned(suite, routers_to_tune(suite, problems), problems);
  problems.throw_if_any();
  return suite;
}

std::vector<TunedRouter> tuned_routers(const SuiteOptions& suite, const std::vector<Setting>& settings,
                                       const Results& results) {
  Problems problems;
  std::vector<TunedRouter> routers = routers_to_tune(suite, problems);
  problems.throw_if_any();
  for (const Setting& setting : settings) {
    if (!tunes(setting)) continue;
    const SettingResult* measured = find_result(results, setting.choose_on, setting.label);
    if (measured == nullptr) continue;
    const auto router = std::find_if(routers.begin(), routers.end(), [&](const TunedRouter& one) {
      return one.router == setting.decode.router && one.drafter == setting.drafter;
    });
    TunedRouter tuned = *router;
    tuned.temperature = setting.temperature();
    tuned.num_samples = setting.decode.num_samples;
    tuned.threshold = setting.decode.threshold.value();
    tuned.max_draft = setting.decode.max_draft.value();
    tuned.slowest = tuned.tokens_per_second = measured->speed.tokens_per_second;
    tuned.settings = 1;
    merge(*router, tuned);
  }
  std::erase_if(routers, [](const TunedRouter& one) { return one.settings == 0; });
  return routers;
}

std::string write_tuned_routers(const std::vector<TunedRouter>& tuned, const fs::path& out_dir) {
  std::string text;
  for (const TunedRouter& one : tuned) {
    const model::Router trained = model::load_router(one.router);
    model::RouterConfig config = trained.config();
    config.threshold = one.threshold;
    config.max_draft = one.max_draft;
    const fs::path place = out_dir / one.place;
    if (model::is_router(place)) fs::remove_all(place);
    model::save_router(place, model::Router(config, trained.parameters(), one.router.string()));
    text += fmt::format(
        "router of {}: fastest on {} at temperature {:g} with threshold {:g} and max_draft {}: {:.0f} tokens/s "
        "(slowest of {} settings {:.0f}); written as defaults of {}\n",
        one.drafter, one.task, one.temperature, one.threshold, one.max_draft, one.tokens_per_second, one.settings,
        one.slowest, place.string());
  }
  return text;
}

}  // namespace draftsmith::evaluate
