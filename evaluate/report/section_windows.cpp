// Draft windows: latency by window K and the best K of each method and drafter, as in SpecGame's table 1 and figures 4
// to 7.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// Settings of one method and drafter that differ only in the window, by rising window.
struct Curve {
  std::string method;   // with its other parameters: "speculative T=1"
  std::string drafter;  // Setting::drafter_label()
  std::vector<const SettingResult*> settings;

  const SettingResult& best() const {
    return **std::max_element(settings.begin(), settings.end(), [](const auto* a, const auto* b) {
      return a->speed.speedup.value < b->speed.speedup.value;
    });
  }
};

std::string shown_parameter(const std::string& key, const nlohmann::ordered_json& value) {
  const std::string name = key == "temperature" ? "T" : key == "num_samples" ? "samples" : key;
  return fmt::format(" {}={}", name,
                     value.is_number()   ? fmt::format("{:g}", value.get<double>())
                     : value.is_string() ? value.get<std::string>()
                                         : value.dump());
}

std::string method_of(const SettingResult& setting) {
  static const std::set<std::string> kNotShown{"model", "drafter", "exits", "exit_layer", "window", "window_rule"};
  std::string text = setting.method;
  for (const auto& [key, value] : setting.params.items()) {
    if (!kNotShown.contains(key)) text += shown_parameter(key, value);
  }
  return text;
}

std::vector<Curve> curves_of(const TaskResult& task) {
  std::vector<Curve> curves;
  for (const SettingResult& setting : task.settings) {
    const bool fixed_window = setting.predicted && setting.predicted->long_run_ms;
    if (!fixed_window || !setting.window()) continue;
    const std::string method = method_of(setting);
    auto found = std::find_if(curves.begin(), curves.end(), [&](const Curve& curve) {
      return curve.method == method && curve.drafter == setting.drafter;
    });
    if (found == curves.end()) found = curves.insert(curves.end(), {method, setting.drafter, {}});
    found->settings.push_back(&setting);
  }
  std::erase_if(curves, [](const Curve& curve) { return curve.settings.size() < 2; });
  for (Curve& curve : curves) {
    std::sort(curve.settings.begin(), curve.settings.end(),
              [](const auto* a, const auto* b) { return a->window() < b->window(); });
  }
  std::stable_sort(curves.begin(), curves.end(), [](const Curve& a, const Curve& b) { return a.method < b.method; });
  return curves;
}

// Returns how many times smaller the drafter is than the model that it drafts for; empty for unknown sizes.
std::string scaling(const Results& results, const SettingResult& setting) {
  const auto drafter = results.parameters_of(setting.drafter_name());
  const auto model = results.parameters_of(setting.model());
  return drafter && model ? fmt::format("{:.1f}x", *model / *drafter) : "";
}

std::vector<std::string> row_of(const Curve& curve, bool fastest, const Results& results) {
  const SettingResult& setting = curve.best();
  return {curve.method,
          curve.drafter + (fastest ? " *" : ""),
          scaling(results, setting),
          fmt::format("{} of {}", *setting.window(), curve.settings.size()),
          fixed(setting.acceptance.alpha, 3),
          fixed(setting.speed.speedup.value, 2),
          fixed(setting.predicted->speedup, 2),
          fixed(setting.speed.decode_ms_per_token, 3),
          fixed(setting.predicted->long_run_ms, 3),
          fixed(setting.predicted->e_pt_ms, 3)};
}

// Returns the autoregressive decoding that the curve is compared with.
const SettingResult& baseline_of_curve(const TaskResult& task, const Curve& curve) {
  const SettingResult* named = task.find(curve.best().baseline);
  return named == nullptr ? task.baseline : *named;
}

std::vector<std::string> baseline_row(const SettingResult& baseline) {
  const SpeedResult& speed = baseline.speed;
  return {
      baseline.name, "", "1x", "", "", fixed(speed.speedup.value, 2), "", fixed(speed.decode_ms_per_token, 3), "", ""};
}

Table table_of(const TaskView& view, const std::vector<Curve>& curves) {
  std::map<std::string, const Curve*> fastest;
  for (const Curve& curve : curves) {
    const Curve*& best = fastest[curve.method];
    const auto speed = [](const Curve& of) { return of.best().speed.speedup.value; };
    if (best == nullptr || speed(curve) > speed(*best)) best = &curve;
  }
  Table table({{"method", Align::kLeft},
               {"drafter", Align::kLeft},
               {"scaling"},
               {"best K"},
               {"alpha"},
               {"speedup"},
               {"theory"},
               {"ms/token"},
               {"long-run"},
               {"E_pt"}});
  std::string method;
  for (const Curve& curve : curves) {
    if (curve.method != method) table.add_row(baseline_row(baseline_of_curve(view.task, curve)));
    method = curve.method;
    table.add_row(row_of(curve, fastest.at(method) == &curve, view.results));
  }
  return table;
}

// Returns the plot of latency by window of one method's drafters: measured solid, long-run latency dashed. A level
// marks decoding without a drafter (`without`, milliseconds per token).
Plot plot_of(const std::string& method, const std::vector<const Curve*>& curves, double without) {
  Plot plot{.label = "latency by window, " + method,
            .x_title = "K, drafted tokens",
            .y_title = "ms per token without prefill, " + method,
            .series = {},
            .levels = {{without, "autoregressive"}}};
  for (size_t i = 0; i < curves.size(); ++i) {
    const SeriesStyle style = series_style(i);
    PlotSeries measured{.name = curves[i]->drafter, .style = style};
    measured.line_title = curves[i]->drafter + " measured";
    measured.line_width = style.filled ? 2 : 0.8;  // never dashed, unlike the long-run latency
    PlotSeries predicted{.name = "", .style = style};
    predicted.line_title = curves[i]->drafter + " long_run_ms";
    predicted.line_width = 1;
    predicted.dashes = "3 4";
    for (const SettingResult* setting : curves[i]->settings) {
      const auto window = static_cast<double>(*setting->window());
      measured.line.push_back({window, setting->speed.decode_ms_per_token, ""});
      predicted.line.push_back({window, *setting->predicted->long_run_ms, ""});
    }
    plot.series.push_back(std::move(measured));
    plot.series.push_back(std::move(predicted));
  }
  return plot;
}

constexpr const char* kWindowsMeaning =
    "ms/token as measured without encoder and prefill; long-run and E_pt are what theory says of it from alpha and the "
    "times of single steps. E_pt averages over iterations: only the long-run latency predicts a speed.";

// Returns a table with the fastest window of each method and drafter that ran with several fixed windows. Pages add a
// plot for each method.
std::vector<Part> window_parts(const TaskView& view, Form form) {
  const auto curves = curves_of(view.task);
  if (curves.empty()) return {};
  Part part{.caption = "best window of each method and drafter, best of n on these lines (* the method's fastest)",
            .table = table_of(view, curves)};
  if (form == Form::kBrief) return {part};
  part.notes.emplace_back(kWindowsMeaning);
  std::map<std::string, std::vector<const Curve*>> methods;
  for (const Curve& curve : curves) methods[curve.method].push_back(&curve);
  for (const auto& [method, of_method] : methods) {
    const double without = baseline_of_curve(view.task, *of_method.front()).speed.decode_ms_per_token;
    part.figures.push_back(
        figure_of(plot_of(method, of_method, without), "Solid: measured; dashed: the long-run latency of theory."));
  }
  return {part};
}

}  // namespace

Section windows_section() {
  return {.title = "Best window of each method and drafter", .parts = window_parts};
}

}  // namespace draftsmith::evaluate
