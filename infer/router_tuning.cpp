#include "infer/router_tuning.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "infer/evaluation_runs.h"
#include "model/router.h"

namespace draftsmith::infer {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

bool asks_router(const EvaluationRun& run) {
  return run.window_rule == "router";
}

std::string tuning_task(const EvaluationOptions& options) {
  const auto first = [&](const auto& wanted) {
    const auto found = std::find_if(options.run.begin(), options.run.end(), wanted);
    return found == options.run.end() ? std::string() : found->choose_on;
  };
  std::string task = first([](const EvaluationRun& run) { return asks_router(run) && !run.choose_on.empty(); });
  if (task.empty()) task = first([](const EvaluationRun& run) { return !run.choose_on.empty(); });
  return task.empty() ? options.task.front().name : task;
}

// Settings are chosen by speed and quality, which a task without a metric does not measure and lossless greedy runs do
// not lose.
bool can_choose(const EvaluationOptions& options, const EvaluationRun& run, const std::string& task) {
  const auto settings = expand_run(run);
  return std::all_of(settings.begin(), settings.end(), [](const auto& one) { return one.equals_greedy(); }) ||
         std::any_of(options.task.begin(), options.task.end(),
                     [&](const EvaluationTask& one) { return one.name == task && one.metric.name != "none"; });
}

void require_tunable(const EvaluationOptions& options) {
  if (options.task.empty()) {
    throw UserError({"task", "a suite needs a task", "at least one [[task]]", "none", ""});
  }
  if (std::any_of(options.run.begin(), options.run.end(), asks_router)) return;
  throw UserError({.where = "tune_router",
                   .what = "there is no router to tune",
                   .expected = "a [[run]] with window_rule = \"router\" and router = \"DIR\"",
                   .found = "none",
                   .hint = "add one, or leave --tune-router out"});
}

// A run's setting as it was measured; nothing for other runs.
std::optional<TunedRouter> setting_of(const ordered_json& run) {
  const auto& params = run.at("params");
  if (!params.contains("router") || !params.contains("threshold") || !params.contains("max_draft")) return {};
  TunedRouter tuned;
  tuned.router = params.at("router").get<std::string>();
  tuned.drafter = params.at("drafter");
  tuned.temperature = params.value("temperature", 0.0);
  tuned.threshold = params.at("threshold");
  tuned.max_draft = params.at("max_draft");
  tuned.tokens_per_second = run.at("speed").at("tokens_per_second");
  tuned.slowest = tuned.tokens_per_second;
  tuned.settings = 1;
  return tuned;
}

void merge(TunedRouter& best, const TunedRouter& other) {
  if (other.temperature > best.temperature) return;
  if (other.temperature < best.temperature) {
    best = other;
    return;
  }
  const double slowest = std::min(best.slowest, other.slowest);
  const int64_t settings = best.settings + 1;
  if (other.tokens_per_second > best.tokens_per_second) best = other;
  best.slowest = slowest;
  best.settings = settings;
}

}  // namespace

EvaluationOptions with_tuning_grids(const EvaluationOptions& options) {
  require_tunable(options);
  EvaluationOptions suite = options;
  const std::string task = tuning_task(options);
  for (EvaluationRun& run : suite.run) {
    if (!asks_router(run)) continue;
    if (run.threshold.empty()) run.threshold = {0.3, 0.5, 0.6, 0.7, 0.8, 0.9};
    if (run.max_draft.empty()) run.max_draft = {4, 8, 16};
    if (run.choose_on.empty() && can_choose(options, run, task)) run.choose_on = task;
  }
  return suite;
}

std::vector<TunedRouter> tuned_routers(const EvaluationOptions& suite, const ordered_json& results) {
  const std::string name = tuning_task(suite);
  std::vector<TunedRouter> tuned;
  for (const auto& task : results.at("tasks")) {
    if (task.at("name") != name) continue;
    for (const auto& run : task.at("runs")) {
      auto setting = setting_of(run);
      if (!setting) continue;
      setting->task = name;
      const auto same = std::find_if(tuned.begin(), tuned.end(), [&](const TunedRouter& one) {
        return one.router == setting->router && one.drafter == setting->drafter;
      });
      if (same == tuned.end()) {
        tuned.push_back(*setting);
      } else {
        merge(*same, *setting);
      }
    }
  }
  return tuned;
}

std::string write_tuned_routers(const std::vector<TunedRouter>& tuned, const fs::path& out_dir) {
  std::string text;
  for (const TunedRouter& one : tuned) {
    const model::Router trained = model::load_router(one.router);
    model::RouterConfig config = trained.config();
    config.threshold = one.threshold;
    config.max_draft = one.max_draft;
    const fs::path place = out_dir / (tuned.size() == 1 ? "router" : "router." + file_safe(one.drafter));
    if (model::is_router(place)) fs::remove_all(place);
    model::save_router(place, model::Router(config, trained.parameters(), one.router.string()));
    text += fmt::format(
        "router of {}: fastest on {} at temperature {:g} with threshold {:g} and max_draft {}: {:.0f} tokens/s "
        "(slowest "
        "of {} settings {:.0f}); written as defaults of {}\n",
        one.drafter, one.task, one.temperature, one.threshold, one.max_draft, one.tokens_per_second, one.settings,
        one.slowest, place.string());
  }
  return text;
}

}  // namespace draftsmith::infer
