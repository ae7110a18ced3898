// Speed in a report: all settings by quality and speedup, speedups by category, and where time goes.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// ---- quality and speed ----

// Leaves out settings that lose more points than this against greedy decoding, or that are more than so many times as
// fast as all that lose little, as a small model alone is: the others can be told apart then.
constexpr double kMostPointsLost = 6;
constexpr double kMostTimesAsFast = 3;

using Settings = std::vector<const SettingResult*>;

std::optional<double> score_of(const SettingResult& setting, const metrics::Metric& score) {
  const auto* quality = setting.quality.find(score.leading_score());
  return quality != nullptr && std::isfinite(quality->value) ? std::optional(quality->value) : std::nullopt;
}

// Takes the settings that lose too much out of the plot and returns words on each, unless most are.
std::vector<std::string> drop_distant(Settings& settings, double greedy, const metrics::Metric& score) {
  double fastest = 1;
  for (const SettingResult* setting : settings) {
    if (loses_little(*setting, score)) fastest = std::max(fastest, setting->speed.speedup.value);
  }
  const auto is_distant = [&](const SettingResult* setting) {
    return score.loss(greedy, *score_of(*setting, score)) > kMostPointsLost * score.point() ||
           setting->speed.speedup.value > kMostTimesAsFast * fastest;
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

// Returns the data set of a category's task: "spec_bench" of "spec_bench.qa"; empty for other tasks.
std::string set_of(const TaskResult& task) {
  const size_t dot = task.name.rfind('.');
  return dot == std::string::npos ? "" : task.name.substr(0, dot);
}

using Row = const SettingResult&;
using Rows = std::vector<const SettingResult*>;  // of one setting, a category each

// Returns the mean of a number, which is NaN if one is.
double geometric_mean_of(const Rows& rows, double (*number)(Row row)) {
  double sum = 0;
  for (const SettingResult* row : rows) sum += std::log(number(*row));
  return std::exp(sum / static_cast<double>(rows.size()));
}

// Returns the geometric mean of speedups, which does not depend on the baseline, over these categories. They err
// independently. The interval is wide rather than narrow: those of few lines are Student's.
Ratio mean_speedup(const Rows& rows) {
  double squares = 0;
  for (const SettingResult* row : rows) {
    const metrics::Interval& interval = row->speed.speedup.interval;
    squares += std::pow(std::log(interval.high / interval.low) / 2, 2);
  }
  const double mean = geometric_mean_of(rows, [](Row row) { return row.speed.speedup.value; });
  const double error = std::exp(std::sqrt(squares) / static_cast<double>(rows.size()));
  return {mean, {mean / error, mean * error}};
}

// Returns the means over rows, of which `categories` are expected. They are unknown of a setting that a category lacks.
SettingResult mean_setting(const Rows& rows, size_t categories) {
  const bool whole = rows.size() == categories;
  const auto mean = [&](double (*number)(Row row)) {
    double sum = whole ? 0 : NAN;
    for (const SettingResult* row : rows) sum += number(*row);
    return sum / static_cast<double>(rows.size());
  };
  const auto geometric_mean = [&](double (*number)(Row row)) { return whole ? geometric_mean_of(rows, number) : NAN; };
  const SettingResult& first = *rows.front();
  SettingResult result;
  result.name = first.name;
  result.method = first.method;
  result.params = first.params;
  result.baseline = first.baseline;
  result.drafter = first.drafter;
  result.repeats = first.repeats;
  result.speed.speedup = whole ? mean_speedup(rows) : Ratio{NAN, {NAN, NAN}};
  result.speed.speedup_decode.value = geometric_mean([](Row row) { return row.speed.speedup_decode.value; });
  Acceptance& acceptance = result.acceptance;
  acceptance.alpha = mean([](Row row) { return row.acceptance.alpha; });
  acceptance.alpha_conditional = first.acceptance.alpha_conditional;
  acceptance.tokens_per_target_run = geometric_mean([](Row row) { return row.acceptance.tokens_per_target_run; });
  acceptance.fallback_rate = mean([](Row row) { return row.acceptance.fallback_rate; });
  acceptance.rollback_rate = mean([](Row row) { return row.acceptance.rollback_rate; });
  for (const SettingResult* row : rows) {
    if (row->failed_lines) result.failed_lines = row->failed_lines;
  }
  if (whole && std::ranges::all_of(rows, [](const auto* row) { return row->lossless_check.has_value(); })) {
    result.lossless_check = std::ranges::all_of(rows, [](const auto* row) { return *row->lossless_check; });
  }
  return result;
}

// Returns the speedups in each category. `all`: the settings' means are the last column.
Table category_table(std::span<const TaskResult* const> tasks, const Rows& settings, bool all, Form form) {
  std::vector<Column> headers{{"run", Align::kLeft}};
  for (const TaskResult* task : tasks) headers.push_back({task->name.substr(task->name.rfind('.') + 1)});
  if (all) headers.push_back({"all"});
  Table table(std::move(headers));
  for (const SettingResult* setting : settings) {
    std::vector<std::string> cells{setting->name};
    for (const TaskResult* task : tasks) {
      const SettingResult* row = task->find(setting->name);
      cells.push_back(row == nullptr ? "" : fixed(row->speed.speedup.value, 2));
    }
    if (all) cells.push_back(with_interval(setting->speed.speedup, 2, form));
    table.add_row(std::move(cells));
  }
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
    caption += fmt::format(" Left out, more than {:g} {}, or {:g} times as fast as all that lose little: {}.",
                           kMostPointsLost * score.point(), score.lower_is_better() ? "above" : "below",
                           kMostTimesAsFast, fmt::join(distant, ", "));
  }
  return {{.figures = {figure_of(speed_plot(view.task, settings, greedy, score), caption)}}};
}

std::vector<const TaskResult*> categories_of(const TaskView& view) {
  std::vector<const TaskResult*> tasks;
  const std::string set = set_of(view.task);
  for (const TaskResult& task : view.results.tasks) {
    if (!set.empty() && set_of(task) == set && !task.chooses && !view.task.chooses) tasks.push_back(&task);
  }
  return tasks.size() > 1 ? tasks : std::vector<const TaskResult*>();
}

TaskResult mean_task(const std::vector<const TaskResult*>& categories) {
  const TaskResult& first = *categories.front();
  TaskResult mean;
  mean.name = fmt::format("{}, mean of {} categories", set_of(first), categories.size());
  mean.metric = first.metric;
  mean.command = first.command;
  Rows baselines;
  std::vector<std::string> names;
  for (const TaskResult* task : categories) {
    mean.lines += task->lines;
    baselines.push_back(&task->baseline);
    for (const SettingResult& setting : task->settings) {
      if (std::ranges::find(names, setting.name) == names.end()) names.push_back(setting.name);
    }
  }
  mean.baseline = mean_setting(baselines, categories.size());
  for (const std::string& name : names) {
    Rows rows;
    for (const TaskResult* task : categories) {
      if (const SettingResult* row = task->find(name)) rows.push_back(row);
    }
    mean.settings.push_back(mean_setting(rows, categories.size()));
  }
  return mean;
}

bool are_summed_up(const std::vector<const TaskResult*>& categories) {
  return !categories.empty() && std::ranges::all_of(categories, [](const TaskResult* task) {
    return task->baseline.quality.scores.empty() && std::isfinite(task->baseline.speed.speedup.value);
  });
}

std::string category_markdown(const TaskResult& mean, const std::vector<const TaskResult*>& categories) {
  return category_table(categories, leading_settings(mean), /*all=*/true, Form::kBrief).markdown();
}

std::vector<Part> category_parts(const TaskView& view, Form form) {
  constexpr size_t kConsoleColumns = 6;  // categories beside each other on the console
  const std::vector<const TaskResult*> categories = categories_of(view);
  if (categories.empty() || categories.back() != &view.task || view.task.settings.empty()) return {};
  const TaskResult mean = mean_task(categories);
  const size_t together = form == Form::kBrief ? kConsoleColumns : categories.size();
  std::vector<Part> parts;
  for (size_t begin = 0; begin < categories.size(); begin += together) {
    const auto shown = std::span(categories).subspan(begin, std::min(together, categories.size() - begin));
    const bool last = begin + together >= categories.size();
    parts.push_back({.caption = fmt::format("{} by category: tokens a second over those of the baseline{}",
                                            set_of(view.task), last ? "; all: geometric mean" : ""),
                     .table = category_table(shown, mean.rows(), last, form)});
  }
  return parts;
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
