// Plot of all settings by quality and speedup, with the line of those that no other beats in both.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/setting_names.h"

namespace draftsmith::evaluate {
namespace {

// Settings that lose more points than this against greedy decoding are left out, so that the others can be told apart.
constexpr double kMostPointsLost = 6;

std::pair<double, double> range(const metrics::Interval& interval) {
  return {interval.low, interval.high};
}

// Settings of a task with quality and speedup, on the plane of both.
class SpeedPlane {
 public:
  explicit SpeedPlane(const TaskResult& task)
      : task_(task), score_(score_style(task)), greedy_(quality_of(task.baseline)), names_(short_names(task)) {
    for (const SettingResult* setting : task.rows()) {
      if (quality_of(*setting) && std::isfinite(setting->speed.speedup.value)) settings_.push_back(setting);
    }
    drop_distant();
  }

  bool empty() const { return settings_.empty(); }

  Plot plot() const {
    Plot plot{.label = "quality against speedup",
              .x_title = "speedup over the target's own decoding",
              .y_title = score_words(score_.name),
              .series = {}};
    if (greedy_) plot.levels = {{*greedy_, ""}, one_point_worse(*greedy_, score_)};
    plot.series.push_back(best_line());
    for (const SettingResult* setting : settings_) add(*setting, plot);
    return plot;
  }

  std::string caption() const {
    std::string text =
        std::string(score_.lower_is_better ? "Down" : "Up") +
        " and to the right is better. Whiskers are 95 % intervals: of speedup, and of the difference from the "
        "setting's own baseline. The dotted line joins the settings that no other beats in both.";
    if (!distant_.empty()) {
      text += fmt::format(" Left out, more than {:g} {}: {}.", kMostPointsLost * score_.point,
                          score_.lower_is_better ? "above" : "below", fmt::join(distant_, ", "));
    }
    return text;
  }

 private:
  std::optional<double> quality_of(const SettingResult& setting) const {
    const auto* quality = setting.quality.find(score_.name);
    return quality != nullptr && std::isfinite(quality->value) ? std::optional(quality->value) : std::nullopt;
  }

  void drop_distant() {
    if (!greedy_) return;
    const double most = kMostPointsLost * score_.point;
    const auto is_distant = [&](const SettingResult* setting) {
      return score_.loss(*greedy_, *quality_of(*setting)) > most;
    };
    if (2 * std::ranges::count_if(settings_, is_distant) > std::ssize(settings_)) return;
    for (const SettingResult* setting : settings_) {
      if (!is_distant(setting)) continue;
      distant_.push_back(fmt::format("{} ({:.2f} × at {:.{}f})", names_.at(setting->name), setting->speed.speedup.value,
                                     *quality_of(*setting), score_.digits));
    }
    std::erase_if(settings_, is_distant);
  }

  // Returns the line through the settings, of those compared with the task's baseline, that no other beats.
  PlotSeries best_line() const {
    std::vector<const SettingResult*> sorted;
    std::ranges::copy_if(settings_, std::back_inserter(sorted), [&](const SettingResult* setting) {
      return setting->baseline == task_.baseline.name && !setting->repeats;
    });
    std::ranges::stable_sort(sorted, [](const SettingResult* a, const SettingResult* b) {
      return a->speed.speedup.value > b->speed.speedup.value;
    });
    PlotSeries series{.name = "", .style = kInk};
    series.line_title = "best trade-offs";
    series.line_width = 1;
    series.dashes = "2 3";
    for (const SettingResult* setting : sorted) {
      const double quality = *quality_of(*setting);
      if (series.line.empty() || score_.loss(series.line.back().y, quality) < 0) {
        series.line.push_back({setting->speed.speedup.value, quality, ""});
      }
    }
    return series;
  }

  void add(const SettingResult& setting, Plot& plot) const {
    auto found = std::ranges::find(plot.series, setting.method, &PlotSeries::name);
    if (found == plot.series.end()) {
      const PlotSeries series{.name = setting.method, .style = series_style(plot.series.size() - 1)};
      found = plot.series.insert(plot.series.end(), series);
    }
    found->marks.push_back(mark(setting));
  }

  PlotPoint mark(const SettingResult& setting) const {
    const Ratio& speedup = setting.speed.speedup;
    const double quality = *quality_of(setting);
    PlotPoint point{.x = speedup.value,
                    .y = quality,
                    .title = fmt::format("{}: {:.2f} × at {:.{}f} {}", setting.name, speedup.value, quality,
                                         score_.digits, score_words(score_.name)),
                    .label = names_.at(setting.name),
                    .x_interval = range(speedup.interval),
                    .key = setting.name};
    if (const auto& difference = setting.quality.difference) {
      const double baseline = quality - difference->value;
      point.y_interval = {baseline + difference->interval.low, baseline + difference->interval.high};
    }
    return point;
  }

  const TaskResult& task_;
  ScoreStyle score_;
  std::optional<double> greedy_;
  std::map<std::string, std::string> names_;
  std::vector<const SettingResult*> settings_;
  std::vector<std::string> distant_;
};

std::vector<Part> speedup_parts(const TaskView& view, Form form) {
  if (form == Form::kBrief) return {};
  const SpeedPlane plane(view.task);
  if (plane.empty()) return {};
  return {{.figures = {figure_of(plane.plot(), plane.caption())}}};
}

}  // namespace

Section quality_speedup_section() {
  return {.title = "Quality and speed", .parts = speedup_parts};
}

}  // namespace draftsmith::evaluate
