// Scores of a task's outputs, of engagement curves, and choices of settings by scores and speed.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "evaluate/measure/speed.h"
#include "evaluate/results/summary.h"
#include "evaluate/suite/tasks.h"
#include "infer/engagement.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {
namespace {

constexpr int64_t kTriedLines = 2;

// Returns a metric's statistics of hypotheses for the task's first lines, with their references and sources.
metrics::LineStatistics statistics_of(const metrics::Metric& metric, const std::vector<std::string>& hypotheses,
                                      const TaskData& data) {
  const auto first = std::ssize(hypotheses);
  const metrics::References references(data.references.begin(),
                                       data.references.begin() + std::min(first, std::ssize(data.references)));
  const std::span<const std::string> sources(data.plain_sources);
  return metric.statistics({.hypotheses = hypotheses,
                            .references = references,
                            .sources = sources.first(std::min(hypotheses.size(), sources.size()))});
}

// Returns the measured settings of the member's group, with what they lose of the leading score.
std::vector<ChosenSetting> candidates_of(const MeasuredTask& measured, const Setting& member) {
  if (!measured.statistics.contains(baseline_of(member).label)) return {};  // it failed
  const auto metric = task_metric(*measured.task);
  const auto score_of = [&](const std::string& label) { return metric->score(measured.statistics.at(label).sum(), 0); };
  const double baseline = score_of(baseline_of(member).label);
  std::vector<ChosenSetting> candidates;
  for (const Setting& setting : measured.settings) {
    if (setting.group != member.group || setting.choose_on != member.choose_on) continue;
    const Speed speed =
        measure_speed(measured.records.at(setting.label), measured.records.at(baseline_of(setting).label));
    const double drop = metric->loss(baseline, score_of(setting.label)) / metric->point();
    candidates.push_back({.on = member.choose_on,
                          .setting = setting.label,
                          .drop_there = setting.follows_target() ? std::min(drop, 0.0) : drop,  // else of rounding
                          .speedup_there = std::isfinite(speed.speedup.value) ? speed.speedup.value : 0});
  }
  return candidates;
}

}  // namespace

void try_command(const MeasuredTask& measured) {
  if (!measured.task->metric.runs_command()) return;
  log_info("task {} is scored by the command: {}", measured.task->name, measured.task->metric.command);
  std::vector<std::string> hypotheses;
  for (int64_t line = 0; line < std::min(kTriedLines, measured.data.lines()); ++line) {
    hypotheses.push_back(measured.data.references[static_cast<size_t>(line)].front());
  }
  try {
    statistics_of(*task_metric(*measured.task), hypotheses, measured.data);
  } catch (const RunError& error) {
    Problems problems;
    problems.add_all(error.problems(),
                     fmt::format("task {}, tried on {} lines: ", measured.task->name, hypotheses.size()));
    problems.throw_if_any();
  }
}

void score_hypotheses(MeasuredTask& measured, const Engine& engine) {
  const auto metric = task_metric(*measured.task);
  std::map<std::vector<std::string>, metrics::LineStatistics> known;
  std::map<std::string, std::string> failed;
  Progress work({.title = "scoring " + measured.task->name}, kHowToGoOn);
  for (const Setting& setting : measured.settings) {
    work_point();
    auto& lines = measured.hypotheses[setting.label];
    std::vector<std::string> texts;
    for (const LineRecord& record : measured.records.at(setting.label)) {
      lines.push_back(metric->line_of(engine.text(record.ids, measured.task->ids)));
      texts.push_back(metric->text_of(lines.back()));
    }
    const auto score = [&] {
      if (!known.contains(texts)) known[texts] = statistics_of(*metric, texts, measured.data);
      measured.statistics[setting.label] = known.at(texts);
    };
    try_setting(setting, "scoring", score, failed);
  }
  remove_failed(failed, "scoring", measured);
}

std::optional<std::string> metric_warning(const MeasuredTask& measured) {
  const auto metric = task_metric(*measured.task);
  const auto lines = measured.hypotheses.find(measured.settings.front().label);
  if (lines == measured.hypotheses.end() || !measured.task->metric.scored()) return std::nullopt;
  const auto texts = from_each(lines->second, [&](const std::string& line) { return metric->text_of(line); });
  const std::string warning = metric->warning({.hypotheses = texts, .references = measured.data.references});
  if (warning.empty()) return std::nullopt;
  log_warning_once("task {}: {}", measured.task->name, warning);
  return warning;
}

metrics::ResamplingOptions resampling_of(const SuiteOptions& options) {
  return {.resamples = options.resamples, .seed = options.seed};
}

Quality quality_of(const metrics::Metric& metric, const metrics::LineStatistics& own,
                   const metrics::LineStatistics* baseline, const SuiteOptions& options) {
  work_point();
  Quality quality;
  if (metric.scores().empty()) return quality;
  quality.scores = metrics::all_scores(metric, own, resampling_of(options));
  if (baseline == nullptr) return quality;
  const metrics::PairedTest test = metrics::paired_bootstrap(own, *baseline, metric.function(), resampling_of(options));
  quality.difference = {.value = test.difference, .interval = test.difference_interval, .p_value = test.p_value};
  return quality;
}

EngagementResult measure_engagement(const EngagementTable& table, const MeasuredTask& task, const SuiteOptions& options,
                                    Engine& engine) {
  const auto metric = task_metric(*task.task);
  const auto prompts =
      std::span(task.prompts)
          .first(static_cast<size_t>(table.lines > 0 ? std::min(table.lines, task.lines()) : task.lines()));
  const auto statistics = [&](std::span<const std::string> lines) {
    const auto texts = from_each(lines, [&](const std::string& line) { return metric->text_of(line); });
    return statistics_of(*metric, texts, task.data);
  };
  const metrics::LineStatistics large = statistics(std::span(task.hypotheses.at(kGreedyLabel)).first(prompts.size()));
  EngagementResult result{.name = table.name,
                          .task = task.task->name,
                          .drafter = table.drafter,
                          .lines = std::ssize(prompts),
                          .large = quality_of(*metric, large, nullptr, options),
                          .points = {}};
  const auto add_points = [&](infer::EngagementPolicy policy, const std::vector<double>& thresholds) {
    for (const double threshold : thresholds) {
      throw_if_stop_requested(kHowToGoOn);
      const infer::EngagedOutputs outputs = engine.engage(table,
                                                          {.policy = policy,
                                                           .threshold = threshold,
                                                           .max_new_tokens = task.max_new_tokens,
                                                           .batch_size = options.batch_size},
                                                          prompts);
      std::vector<std::string> lines;
      for (const auto& ids : outputs.ids) lines.push_back(metric->line_of(engine.text(ids, task.task->ids)));
      result.points.push_back({.policy = infer::engagement_policies().name(policy),
                               .threshold = threshold,
                               .tokens = outputs.tokens,
                               .engaged = outputs.engaged,
                               .changed = outputs.changed,
                               .quality = quality_of(*metric, statistics(lines), &large, options)});
    }
  };
  add_points(infer::EngagementPolicy::kOracle, table.oracle);
  add_points(infer::EngagementPolicy::kFallback, table.fallback);
  return result;
}

std::optional<ChosenSetting> choose(const std::vector<ChosenSetting>& candidates, double max_drop) {
  const auto best = std::ranges::min_element(candidates, [&](const ChosenSetting& a, const ChosenSetting& b) {
    const bool allowed = a.drop_there <= max_drop;
    if (allowed != (b.drop_there <= max_drop)) return allowed;
    return allowed ? a.speedup_there > b.speedup_there : a.drop_there < b.drop_there;
  });
  if (best == candidates.end()) return std::nullopt;
  ChosenSetting choice = *best;
  choice.max_drop = max_drop;
  choice.allowed = choice.drop_there <= max_drop;
  return choice;
}

void add_chosen(const std::vector<Setting>& settings, const std::vector<MeasuredTask>& measured, MeasuredTask& task) {
  std::set<std::string> groups;
  for (const Setting& setting : settings) {
    if (setting.choose_on.empty() || !groups.insert(setting.group).second) continue;
    const auto chooses = [&](const MeasuredTask& one) { return one.task->name == setting.choose_on; };
    const std::vector<ChosenSetting> candidates = candidates_of(*std::ranges::find_if(measured, chooses), setting);
    for (const double max_drop : setting.max_drop) {
      const auto choice = choose(candidates, max_drop);
      if (!choice) {
        task.failures.push_back({chosen_label(setting.group, max_drop), "choosing",
                                 fmt::format("no setting of {} was measured on {}", setting.group, setting.choose_on)});
        continue;
      }
      task.chosen.push_back(*choice);
      if (std::ranges::find(task.settings, choice->setting, &Setting::label) != task.settings.end()) continue;
      task.settings.push_back(*std::ranges::find(settings, choice->setting, &Setting::label));
    }
  }
}

}  // namespace draftsmith::evaluate
