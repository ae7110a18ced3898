// Speed in a report: all settings by quality and speedup, speedups by category, and where time goes.
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// ---- quality and speed ----

// Settings that lose more points than this against greedy decoding are left out, so that the others can be told apart.
constexpr double kMostPointsLost = 6;

using Settings = std::vector<const SettingResult*>;

std::optional<double> score_of(const SettingResult& setting, const metrics::Metric& score) {
  const auto* quality = setting.quality.find(score.leading_score());
  return quality != nullptr && std::isfinite(quality->value) ? std::optional(quality->value) : std::nullopt;
}

// Takes the settings that lose too much out of the plot and returns words on each, unless most are.
std::vector<std::string> drop_distant(Settings& settings, double greedy, const metrics::Metric& score) {
  const auto is_distant = [&](const SettingResult* setting) {
    return score.loss(greedy, *score_of(*setting, score)) > kMostPointsLost * score.point();
  };
  std::vector<std::string> distant;
  if (2 * std::ranges::count_if(settings, is_distant) > std::ssize(settings)) return distant;
  for (const SettingResult* setting : settings) {
    if (!is_distant(setting)) continue;
    distant.push_back(fmt::format("{} ({:.2f} × at {:.{}f})", setting->name, setting->speed.speedup.value,
                                  *score_of(*setting, score), score.digits()));
  }
  std::erase_if(settings, is_distant);
  return distant;
}

// Returns the line through the settings, of those compared with the task's baseline, that no other beats in both.
PlotSeries best_line(Settings settings, const TaskResult& task, const metrics::Metric& score) {
  std::erase_if(settings, [&](const SettingResult* setting) {
    return setting->baseline != task.baseline.name || setting->repeats;
  });
  std::ranges::stable_sort(settings, std::greater(), [](auto* setting) { return setting->speed.speedup.value; });
  PlotSeries series{.name = "", .style = kInk, .line_title = "best trade-offs", .line_width = 1, .dashes = "2 3"};
  for (const SettingResult* setting : settings) {
    const double quality = *score_of(*setting, score);
    if (series.line.empty() || score.loss(series.line.back().y, quality) < 0) {
      series.line.push_back({setting->speed.speedup.value, quality, ""});
    }
  }
  return series;
}

PlotPoint speed_mark(const SettingResult& setting, const metrics::Metric& score) {
  const Ratio& speedup = setting.speed.speedup;
  const double quality = *score_of(setting, score);
  PlotPoint point{.x = speedup.value,
                  .y = quality,
                  .title = fmt::format("{}: {:.2f} × at {:.{}f} {}", setting.name, speedup.value, quality,
                                       score.digits(), score_words(score.leading_score())),
                  .label = setting.name,
                  .x_interval = {{speedup.interval.low, speedup.interval.high}},
                  .key = setting.name};
  if (const auto& difference = setting.quality.difference) {
    const double baseline = quality - difference->value;
    point.y_interval = {baseline + difference->interval.low, baseline + difference->interval.high};
  }
  return point;
}

// Returns the plot of all settings by quality and speedup. Levels: greedy decoding's and a point less.
Plot speed_plot(const TaskResult& task, const Settings& settings, std::optional<double> greedy,
                const metrics::Metric& score) {
  Plot plot{.label = "quality against speedup",
            .x_title = "speedup over the target's own decoding",
            .y_title = score_words(score.leading_score()),
            .series = {best_line(settings, task, score)}};
  if (greedy) {
    plot.levels = {{*greedy, ""},
                   {score.lower_is_better() ? *greedy + score.point() : *greedy - score.point(),
                    score.lower_is_better() ? "one point more" : "one point less"}};
  }
  for (const SettingResult* setting : settings) {
    auto found = std::ranges::find(plot.series, setting->method, &PlotSeries::name);
    if (found == plot.series.end()) {
      found = plot.series.insert(found, {.name = setting->method, .style = series_style(plot.series.size() - 1)});
    }
    found->marks.push_back(speed_mark(*setting, score));
  }
  return plot;
}

// ---- categories: data sets whose categories are tasks of their own (Spec-Bench, SPEED-Bench) ----

constexpr size_t kMostCategoryColumns = 6;  // settings beside each other on the console

// Returns the data set of a category's task: "spec_bench" of "spec_bench.qa"; empty for other tasks.
std::string set_of(const TaskResult& task) {
  const size_t dot = task.name.rfind('.');
  return dot == std::string::npos ? "" : task.name.substr(0, dot);
}

// Returns the speedups of settings, and below a line their geometric means, which do not depend on the baseline.
Table category_table(const std::vector<const TaskResult*>& tasks, const std::vector<std::string>& settings) {
  std::vector<Column> headers{{"category", Align::kLeft}, {"lines"}};
  for (const std::string& setting : settings) headers.push_back({setting, Align::kRight, "speedup of " + setting});
  Table table(std::move(headers));
  std::vector<double> logarithms(settings.size());
  int64_t lines = 0;
  for (const TaskResult* task : tasks) {
    lines += task->lines;
    std::vector<std::string> cells{task->name.substr(task->name.rfind('.') + 1), std::to_string(task->lines)};
    for (size_t i = 0; i < settings.size(); ++i) {
      const SettingResult* setting = task->find(settings[i]);
      const double speedup = setting == nullptr ? NAN : setting->speed.speedup.value;
      logarithms[i] += std::log(speedup);
      cells.push_back(fixed(speedup, 2));
    }
    table.add_row(std::move(cells));
  }
  table.add_rule();
  std::vector<std::string> means{"all (geometric mean)", std::to_string(lines)};
  for (const double sum : logarithms) means.push_back(fixed(std::exp(sum / static_cast<double>(tasks.size())), 2));
  table.add_row(std::move(means));
  return table;
}

// ---- throughput, percentiles and phases ----

constexpr size_t kMostBars = 40;

// Returns three significant digits.
std::string significant(double value) {
  if (!std::isfinite(value)) return "";
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:#.3g}", value);
}

Table latency_table(const TaskResult& task) {
  Table table({{"run", Align::kLeft},
               {"tok/s", Align::kRight, "tokens a second"},
               {"sent/s", Align::kRight, "sentences a second"},
               {"sent p50", Align::kRight, "milliseconds of a sentence, median"},
               {"p95", Align::kRight, "95 % of sentences take at most this"},
               {"p99", Align::kRight, "99 % of sentences take at most this"},
               {"tok p50", Align::kRight, "milliseconds of a token, median"},
               {"p95", Align::kRight, "95 % of sentences take at most this for a token"},
               {"p99", Align::kRight, "99 % of sentences take at most this for a token"}});
  for (const SettingResult* setting : task.rows()) {
    const Speed& speed = setting->speed;
    const auto& [sentence, token] = speed.latency;
    if (!std::isfinite(sentence.p50)) continue;
    table.add_row({setting->name, significant(speed.tokens_per_second), significant(speed.sentences_per_second),
                   significant(sentence.p50), significant(sentence.p95), significant(sentence.p99),
                   significant(token.p50), significant(token.p95), significant(token.p99)});
  }
  return table;
}

bool is_timed(const SettingResult& setting) {
  return setting.speed.ms_per_token > 0 && setting.speed.tokens > 0;
}

// Returns the plot of the time that each setting spends in each phase.
Figure phase_figure(const ShownSettings& shown) {
  BarPlot plot{.label = "milliseconds per token by phase",
               .unit = "ms per token",
               .parts = {"verify", "draft", "encode", "prefill", "other"},
               .bars = {}};
  for (const SettingResult* setting : shown.settings) {
    const Speed& speed = setting->speed;
    Bar& bar = plot.bars.emplace_back();
    bar.name = bar.key = setting->name;
    bar.total = fmt::format("{:.3g} ms", speed.ms_per_token);
    const auto& [encode, prefill, draft, verify, other] = speed.seconds;
    for (const double seconds : {verify, draft, encode, prefill, other}) {
      bar.values.push_back(1000 * seconds / static_cast<double>(speed.tokens));
    }
  }
  return figure_of(plot,
                   "Milliseconds per new token: the target's runs over drafts or single tokens (verify), the drafter's "
                   "steps (draft), the encoder, the prompt (prefill), and the rest." +
                       shown.left_out);
}

}  // namespace

std::vector<Part> quality_speed_parts(const TaskView& view, Form form) {
  const auto metric = metric_of(view.task);
  const metrics::Metric& score = *metric;
  Settings settings = view.task.rows();
  std::erase_if(settings, [&](const SettingResult* setting) {
    return !score_of(*setting, score) || !std::isfinite(setting->speed.speedup.value);
  });
  if (form == Form::kBrief || settings.empty()) return {};
  const std::optional<double> greedy = score_of(view.task.baseline, score);
  const auto distant = greedy ? drop_distant(settings, *greedy, score) : std::vector<std::string>();
  std::string caption = std::string(score.lower_is_better() ? "Down" : "Up") +
                        " and to the right is better. Whiskers are 95 % intervals: of speedup, and of the difference "
                        "from the setting's own baseline. The dotted line joins the settings that no other beats in "
                        "both.";
  if (!distant.empty()) {
    caption += fmt::format(" Left out, more than {:g} {}: {}.", kMostPointsLost * score.point(),
                           score.lower_is_better() ? "above" : "below", fmt::join(distant, ", "));
  }
  return {{.figures = {figure_of(speed_plot(view.task, settings, greedy, score), caption)}}};
}

std::vector<Part> category_parts(const TaskView& view, Form form) {
  const std::string set = set_of(view.task);
  if (set.empty() || view.task.chooses) return {};
  std::vector<const TaskResult*> tasks;
  for (const TaskResult& task : view.results.tasks) {
    if (!task.chooses && set_of(task) == set) tasks.push_back(&task);
  }
  if (tasks.size() < 2 || tasks.back() != &view.task) return {};
  std::vector<std::string> settings;
  for (const SettingResult& setting : view.task.settings) settings.push_back(setting.name);
  const size_t all = settings.size();
  if (form == Form::kBrief && all > kMostCategoryColumns) settings.resize(kMostCategoryColumns);
  if (settings.empty()) return {};
  Part part{.caption = fmt::format("{} by category: tokens a second over those of the baseline", set),
            .table = category_table(tasks, settings)};
  if (settings.size() < all) {
    part.notes.push_back(fmt::format("  {} more settings are in report.html and results.csv", all - settings.size()));
  }
  return {part};
}

std::vector<Part> time_parts(const TaskView& view, Form form) {
  std::vector<Part> parts;
  Table table = latency_table(view.task);
  if (!table.empty()) {
    parts.push_back({.caption = "Milliseconds of a sentence and of a token: median, 95 % and 99 % of the timed lines. "
                                "A sentence takes as long as its batch.",
                     .table = std::move(table)});
  }
  const ShownSettings shown = fastest_settings(view.task, kMostBars, is_timed);
  if (form == Form::kFull && !shown.settings.empty()) parts.push_back({.figures = {phase_figure(shown)}});
  return parts;
}

}  // namespace draftsmith::evaluate
