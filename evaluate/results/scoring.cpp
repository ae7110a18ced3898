// Scores of a task's outputs, of engagement curves, and choices of settings by scores and speed.
#include "metrics/scoring.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/sha256.h"
#include "evaluate/measure/failed_settings.h"
#include "evaluate/measure/failures.h"
#include "evaluate/measure/speed.h"
#include "evaluate/results/summary.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTriedLines = 2;
constexpr uintmax_t kLargestScript = 10'000'000;  // bytes

bool runs_command(const TaskOptions& task) {
  return task.metric.runs_command();
}

// Returns a key of the files that a command names, so that a script that was changed is asked again.
std::string files_of(const std::string& command) {
  std::istringstream words(command);
  std::string key;
  for (std::string word; words >> word;) {
    std::error_code none;
    const bool small = fs::is_regular_file(word, none) && fs::file_size(word, none) <= kLargestScript;
    if (small && !none) key += sha256(read_file(word));
  }
  return key;
}

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

// Returns the same of a metric that is a command: what it answers now, or answered in an earlier run.
metrics::LineStatistics answers_of(const metrics::Metric& metric, const std::vector<std::string>& hypotheses,
                                   const MeasuredTask& task, MeasurementStore& store) {
  const std::string asked = metric.signature(task.data.references) + files_of(task.task->metric.command) +
                            nlohmann::json(hypotheses).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string name = measurement_name({"scores", task.key, sha256(asked)});
  if (store.has(name)) return {.width = 2, .values = store.at(name).get<std::vector<double>>()};
  metrics::LineStatistics statistics = statistics_of(metric, hypotheses, task.data);
  store.add(name, statistics.values);
  return statistics;
}

// Returns the measured settings of the member's group, with what they lose of the leading score.
std::vector<ChosenSetting> candidates_of(const MeasuredTask& measured, const Setting& member) {
  const metrics::ResamplingOptions few{.resamples = 1, .seed = 1, .confidence = 0.95};  // only the values are used
  const auto metric = task_metric(*measured.task);
  const auto score_of = [&](const std::string& label) { return metric->score(measured.statistics.at(label).sum(), 0); };
  const double baseline = score_of(baseline_of(member).label);
  std::vector<ChosenSetting> candidates;
  for (const SettingRow& row : measured.rows) {
    const Setting& setting = row.settings;
    if (setting.group != member.group || setting.choose_on != member.choose_on) continue;
    const Speed speed =
        measure_speed(measured.records.at(setting.label), measured.records.at(baseline_of(setting).label), few);
    candidates.push_back({.on = member.choose_on,
                          .setting = setting.label,
                          .drop_there = metric->loss(baseline, score_of(setting.label)) / metric->point(),
                          .speedup_there = speed.speedup.value});
  }
  return candidates;
}

const MeasuredTask& task_named(const std::vector<MeasuredTask>& tasks, const std::string& name) {
  return *std::ranges::find_if(tasks, [&](const MeasuredTask& task) { return task.task->name == name; });
}

}  // namespace

void try_command(const MeasuredTask& measured) {
  if (!runs_command(*measured.task)) return;
  log_info("task {} is scored by the command: {}", measured.task->name, measured.task->metric.command);
  std::vector<std::string> hypotheses;
  for (int64_t line = 0; line < std::min(kTriedLines, measured.data.lines()); ++line) {
    hypotheses.push_back(measured.data.references[static_cast<size_t>(line)].front());
  }
  try {
    statistics_of(*task_metric(*measured.task), hypotheses, measured.data);
  } catch (const RunError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) {
      problem.where =
          fmt::format("task {}, tried on {} lines: {}", measured.task->name, hypotheses.size(), problem.where);
    }
    throw UserError(std::move(problems));
  }
}

void score_hypotheses(MeasuredTask& measured, const Engine& engine, MeasurementStore& store) {
  const auto metric = task_metric(*measured.task);
  std::map<std::vector<std::string>, metrics::LineStatistics> known;
  std::map<std::string, std::string> failed;
  for (const auto& [label, records] : measured.records) {
    auto& lines = measured.hypotheses[label];
    std::vector<std::string> texts;
    for (const LineRecord& record : records) {
      lines.push_back(metric->line_of(engine.text(record.ids, measured.task->ids)));
      texts.push_back(metric->text_of(lines.back()));
    }
    const auto score = [&] {
      if (!known.contains(texts)) {
        known[texts] = runs_command(*measured.task) ? answers_of(*metric, texts, measured, store)
                                                    : statistics_of(*metric, texts, measured.data);
      }
      measured.statistics[label] = known.at(texts);
    };
    if (label == greedy_baseline().label) {
      score();  // all others are compared with it
    } else if (const auto message = failure_of(score)) {
      log_warning("{} failed in the scoring of {}: {}", label, measured.task->name, *message);
      failed[label] = *message;
    }
  }
  remove_failed(failed, "scoring", measured);
}

metrics::ResamplingOptions resampling_of(const SuiteOptions& options) {
  return {.resamples = options.resamples, .seed = options.seed, .confidence = 0.95};
}

Quality quality_of(const metrics::Metric& metric, const metrics::LineStatistics& own,
                   const metrics::LineStatistics* baseline, const SuiteOptions& options) {
  Quality quality;
  if (metric.scores().empty()) return quality;
  quality.scores = metrics::all_scores(metric, own, resampling_of(options));
  if (baseline == nullptr) return quality;
  const metrics::PairedTest test = metrics::paired_bootstrap(own, *baseline, metric.function(), resampling_of(options));
  quality.difference = {.value = test.difference, .interval = test.difference_interval, .p_value = test.p_value};
  return quality;
}

EngagementResult engagement_result(const EngagementPrompts& curve, const std::vector<MeasuredEngagement>& points,
                                   const MeasuredTask& task, const SuiteOptions& options, const Engine& engine) {
  const auto metric = task_metric(*task.task);
  const auto statistics = [&](std::span<const std::string> lines) {
    std::vector<std::string> texts;
    for (const std::string& line : lines) texts.push_back(metric->text_of(line));
    return statistics_of(*metric, texts, task.data);
  };
  const metrics::LineStatistics large =
      statistics(std::span(task.hypotheses.at(greedy_baseline().label)).first(curve.prompts.size()));
  EngagementResult result{.name = curve.table.name,
                          .task = curve.task,
                          .drafter = curve.table.drafter,
                          .lines = std::ssize(curve.prompts),
                          .large = quality_of(*metric, large, nullptr, options),
                          .points = {}};
  for (const MeasuredEngagement& point : points) {
    std::vector<std::string> lines;
    for (const auto& ids : point.outputs.ids) lines.push_back(metric->line_of(engine.text(ids, task.task->ids)));
    result.points.push_back({.policy = infer::engagement_policies().name(point.policy),
                             .threshold = point.threshold,
                             .tokens = point.outputs.tokens,
                             .engaged = point.outputs.engaged,
                             .changed = point.outputs.changed,
                             .quality = quality_of(*metric, statistics(lines), &large, options)});
  }
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

void add_chosen_rows(const std::vector<Setting>& settings, const std::vector<MeasuredTask>& measured,
                     MeasuredTask& task) {
  std::vector<std::string> groups;
  for (const auto& setting : settings) {
    if (setting.choose_on.empty() || std::find(groups.begin(), groups.end(), setting.group) != groups.end()) continue;
    groups.push_back(setting.group);
    for (const double max_drop : setting.max_drop) {
      const auto choice = choose(candidates_of(task_named(measured, setting.choose_on), setting), max_drop);
      if (!choice) {
        task.failures.push_back({chosen_label(setting.group, max_drop), "choosing",
                                 fmt::format("no setting of {} was measured on {}", setting.group, setting.choose_on)});
        continue;
      }
      const auto chosen = std::find_if(settings.begin(), settings.end(),
                                       [&](const auto& other) { return other.label == choice->setting; });
      task.rows.push_back({chosen_label(setting.group, max_drop), *chosen, *choice});
    }
  }
}

}  // namespace draftsmith::evaluate
