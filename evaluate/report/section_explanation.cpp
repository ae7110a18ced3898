// Tables that explain a measured speed: what would make each setting faster, and where the time beyond the prediction
// went (evaluate/theory/explanation.h).
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/sections.h"
#include "evaluate/theory/explanation.h"

namespace draftsmith::evaluate {
namespace {

// Setting that can be explained.
struct Explained {
  const SettingResult& setting;
  TimedRuns runs;
  TimedWork own;
  TimedWork baseline;
  infer::StepCosts costs;
};

// Returns a positive integer among the options of suite or setting, 1 without it.
int64_t option_of(const nlohmann::ordered_json& options, const char* key) {
  const auto found = options.find(key);
  return found != options.end() && found->is_number_integer() ? found->get<int64_t>() : 1;
}

// Returns whether lines are decoded one by one with one sample: rounds of several rows last as long as their longest.
bool one_by_one(const Results& results, const SettingResult& setting) {
  const auto& params = setting.params;
  const int64_t batch = option_of(params.contains("batch_size") ? params : results.options, "batch_size");
  return batch == 1 && option_of(params, "num_samples") == 1;
}

std::optional<infer::StepCosts> costs_of(const TaskResult& task, const std::string& name) {
  for (const auto& [drafter, result] : task.drafters) {
    if (drafter != name || !result.target_step_seconds || result.target_step_seconds->empty()) continue;
    return infer::StepCosts{.target = *result.target_step_seconds,
                            .draft = result.draft_step_seconds.value_or(0),
                            .drafts = result.drafting_seconds.value_or(std::vector<double>())};
  }
  return std::nullopt;
}

// Waiting counts on CPUs only: elsewhere the thread waits for the device that works.
TimedWork work_of(const SettingResult& setting, bool on_cpu) {
  return {.tokens = setting.speed.tokens,
          .seconds = setting.speed.seconds,
          .overhead = setting.speed.overhead_seconds.value_or(0),
          .waited = on_cpu ? setting.speed.waited_seconds.value_or(0) : 0};
}

std::vector<Explained> explained_settings(const TaskView& view) {
  const Results& results = view.results;
  const bool on_cpu = results.environment_text("device") == results.environment_text("cpu");
  std::vector<Explained> explained;
  for (const SettingResult& setting : view.task.settings) {
    const SettingResult* baseline = view.task.find(setting.baseline);
    const auto costs = costs_of(view.task, setting.drafter);
    if (!costs || baseline == nullptr || !setting.accounted) continue;
    if (!one_by_one(results, setting) || setting.accounted->runs.target_runs == 0) continue;
    if (setting.speed.tokens == 0 || !(setting.speed.speedup.value > 0)) continue;
    explained.push_back(
        {setting, setting.accounted->runs, work_of(setting, on_cpu), work_of(*baseline, on_cpu), *costs});
  }
  return explained;
}

Part improvements_part(const std::vector<Explained>& explained, Form form) {
  const bool brief = form == Form::kBrief;
  Table table({{brief ? "run" : "setting", Align::kLeft},
               {"speedup"},
               {brief ? "alpha +.05" : "acceptance rate + 0.05"},
               {brief ? "half draft" : "half the draft cost"},
               {brief ? "free verify" : "free verification"},
               {"no encoder"}});
  for (const Explained& one : explained) {
    const double speedup = one.setting.speed.speedup.value;
    const Improvements better = improvements(one.runs, one.own, one.baseline, speedup, one.costs);
    const auto change = [&](double changed) { return fmt::format("{:.2f} ({:+.2f})", changed, changed - speedup); };
    table.add_row({one.setting.name, fixed(speedup, 2), change(better.more_alpha), change(better.half_draft),
                   change(better.free_verification), change(better.no_encoder)});
  }
  return {.caption = "What would make this faster: the speedup, end to end, with one thing changed.",
          .table = std::move(table),
          .notes = {"By theory at the measured times of steps, for rounds of the mean number of drafts. Without an "
                    "encoder the baseline has none either."}};
}

std::string milliseconds(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:+.3f}", 1000 * *seconds) : "";
}

Part gaps_part(const std::vector<Explained>& explained, Form form) {
  Table table({{form == Form::kBrief ? "run" : "setting", Align::kLeft},
               {"predicted"},
               {"measured"},
               {"acceptance"},
               {"drafting"},
               {"verification"},
               {"cache"},
               {"waiting"},
               {"other"}});
  for (const Explained& one : explained) {
    const auto& predicted = one.setting.predicted;
    const auto seconds = predicted && predicted->long_run_ms && std::isfinite(*predicted->long_run_ms)
                             ? std::optional(*predicted->long_run_ms / 1000)
                             : std::nullopt;
    const SpeedGap gap = speed_gap(one.runs, one.own, one.costs, seconds);
    table.add_row({one.setting.name, fixed(1000 * gap.predicted, 3), fixed(1000 * gap.measured, 3),
                   milliseconds(gap.acceptance), milliseconds(gap.drafting), milliseconds(gap.verification),
                   milliseconds(gap.cache), milliseconds(gap.waiting), milliseconds(gap.other)});
  }
  return {
      .caption =
          "Where the time went: milliseconds a new token, decoding alone; the parts sum to measured less "
          "predicted.",
      .table = std::move(table),
      .notes = {"acceptance: runs that independent acceptances of the same alpha would not have taken; without it, "
                "the runs as counted are the prediction. drafting, verification: beyond the measured times of single "
                "steps. cache: taking over tokens and rolling back. waiting: the thread did not run."}};
}

std::vector<Part> explanation_parts(const TaskView& view, Form form) {
  const std::vector<Explained> explained = explained_settings(view);
  if (explained.empty()) return {};
  return {improvements_part(explained, form), gaps_part(explained, form)};
}

}  // namespace

Section explanation_section() {
  return {.title = "What would make this faster", .parts = explanation_parts, .request = Request::kExplain};
}

}  // namespace draftsmith::evaluate
