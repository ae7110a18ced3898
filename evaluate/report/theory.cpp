// Theory in a report: measured speed against what is predicted and what the counted runs explain, and draft windows:
// latency by window K and the best K of each method and drafter, as in SpecGame's table 1 and figures 4 to 7.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/plots.h"
#include "evaluate/report/sections.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {
namespace {

// Adds a setting's measured speedup over an expected one.
void add_expected(const SettingResult& setting, const std::string& label, double expected, PlotSeries& series) {
  const double measured = setting.speed.speedup_decode.value;
  if (!std::isfinite(expected) || !std::isfinite(measured)) return;
  series.marks.push_back({.x = expected,
                          .y = measured,
                          .title = fmt::format("{}: {:.2f} × {}, {:.2f} × measured ({:+.0f} %)", setting.name, expected,
                                               series.name, measured, 100 * (measured / expected - 1)),
                          .label = label,
                          .key = setting.name});
}

// Returns the plot of measured speed against what theory predicts, and against what the counted runs explain.
std::vector<Part> expected_parts(const TaskView& view) {
  PlotSeries predicted{.name = "predicted by theory", .style = series_style(0)};
  PlotSeries accounted{.name = "explained by counted runs", .style = series_style(1)};
  accounted.style.filled = false;
  for (const SettingResult& setting : view.task.settings) {
    if (setting.predicted) add_expected(setting, setting.name, setting.predicted->speedup, predicted);
    const std::string label = setting.predicted ? "" : setting.name;  // one label a setting
    if (setting.accounted) add_expected(setting, label, setting.accounted->speedup, accounted);
  }
  if (predicted.marks.empty() && accounted.marks.empty()) return {};
  Plot plot{.label = "measured against predicted speedup",
            .x_title = "expected speedup",
            .y_title = "measured speedup, without encoder and prompt",
            .series = {},
            .diagonal = true};
  for (PlotSeries* series : {&predicted, &accounted}) {
    if (!series->marks.empty()) plot.series.push_back(std::move(*series));
  }
  return {{.figures = {figure_of(plot,
                                 "On the line, measurement and expectation agree; below it, time went into what "
                                 "the expectation leaves out. Theory predicts from acceptance and step times; "
                                 "the other marks take the runs as they were counted.")}}};
}

// Settings of one method and drafter that differ only in the window, by rising window.
struct WindowCurve {
  std::string method;   // with its other parameters: "speculative T=1"
  std::string drafter;  // Setting::drafter_label()
  std::vector<const SettingResult*> settings = {};

  const SettingResult& best() const {
    return **std::ranges::max_element(settings, {}, [](auto* setting) { return setting->speed.speedup.value; });
  }
  double best_speedup() const { return best().speed.speedup.value; }
};

// Returns a method with its parameters other than models and windows: "speculative T=1".
std::string method_words(const SettingResult& setting) {
  static const std::set<std::string> kNotShown{"model", "drafter", "exits", "exit_layer", "window", "window_rule"};
  std::string text = setting.method;
  for (const auto& [key, value] : setting.params.items()) {
    if (kNotShown.contains(key)) continue;
    const std::string name = key == "temperature" ? "T" : key == "num_samples" ? "samples" : key;
    text += fmt::format(" {}={}", name,
                        value.is_number()   ? fmt::format("{:g}", value.get<double>())
                        : value.is_string() ? value.get<std::string>()
                                            : value.dump());
  }
  return text;
}

// Returns the curves of at least two fixed windows, by method.
std::vector<WindowCurve> window_curves(const TaskResult& task) {
  std::vector<WindowCurve> curves;
  for (const SettingResult& setting : task.settings) {
    if (!setting.predicted || !setting.predicted->long_run_ms || !setting.window()) continue;
    const std::string method = method_words(setting);
    auto found = std::ranges::find_if(
        curves, [&](const WindowCurve& curve) { return curve.method == method && curve.drafter == setting.drafter; });
    if (found == curves.end()) found = curves.insert(found, {.method = method, .drafter = setting.drafter});
    found->settings.push_back(&setting);
  }
  std::erase_if(curves, [](const WindowCurve& curve) { return curve.settings.size() < 2; });
  for (WindowCurve& curve : curves) std::ranges::sort(curve.settings, {}, &SettingResult::window);
  std::ranges::stable_sort(curves, {}, &WindowCurve::method);
  return curves;
}

// Returns how many times smaller the drafter is than the model that it drafts for; empty for unknown sizes.
std::string scaling(const Results& results, const SettingResult& setting) {
  const auto sizes = results.environment.find("parameters");
  const std::string model = setting.params.value("model", kTargetName);
  if (sizes == results.environment.end() || !sizes->contains(model)) return "";
  if (!sizes->contains(setting.drafter_name())) return "";
  return fmt::format("{:.1f}x", sizes->at(model).get<double>() / sizes->at(setting.drafter_name()).get<double>());
}

Table window_table(const Results& results, const std::vector<WindowCurve>& curves) {
  std::map<std::string, double> fastest;  // speedup of each method
  for (const WindowCurve& curve : curves) fastest[curve.method] = std::max(fastest[curve.method], curve.best_speedup());
  Table table({{"method", Align::kLeft},
               {"drafter", Align::kLeft},
               {"scaling", Align::kRight, "parameters of the model over the drafter's"},
               {"best K"},
               {"alpha"},
               {"speedup"},
               {"theory"},
               {"ms/token"},
               {"long-run"},
               {"E_pt"}});
  for (const WindowCurve& curve : curves) {
    const SettingResult& best = curve.best();
    table.add_row({curve.method, curve.drafter + (curve.best_speedup() == fastest.at(curve.method) ? " *" : ""),
                   scaling(results, best), fmt::format("{} of {}", *best.window(), curve.settings.size()),
                   fixed(best.acceptance.alpha, 3), fixed(best.speed.speedup.value, 2),
                   fixed(best.predicted->speedup, 2), fixed(best.speed.decode_ms_per_token, 3),
                   fixed(best.predicted->long_run_ms, 3), fixed(best.predicted->e_pt_ms, 3)});
  }
  return table;
}

// Returns the plot of latency by window of one method's drafters: measured solid, long-run latency dashed. A level
// marks decoding without a drafter.
Plot window_plot(const TaskResult& task, const std::vector<const WindowCurve*>& curves) {
  const std::string& method = curves.front()->method;
  const SettingResult* baseline = task.find(curves.front()->best().baseline);
  const double without = (baseline == nullptr ? task.baseline : *baseline).speed.decode_ms_per_token;
  Plot plot{.label = "latency by window, " + method,
            .x_title = "K, drafted tokens",
            .y_title = "ms per token without prefill, " + method,
            .series = {},
            .levels = {{without, "autoregressive"}}};
  for (size_t i = 0; i < curves.size(); ++i) {
    const SeriesStyle style = series_style(i);
    PlotSeries measured{.name = curves[i]->drafter,
                        .style = style,
                        .line_title = curves[i]->drafter + " measured",
                        .line_width = style.filled ? 2 : 0.8};  // never dashed, unlike the long-run latency
    PlotSeries predicted{.name = "",
                         .style = style,
                         .line_title = curves[i]->drafter + " long_run_ms",
                         .line_width = 1,
                         .dashes = "3 4"};
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

}  // namespace

// Pages show the expected speeds and a plot of windows for each method; all reports have a table with the fastest
// window of each method and drafter that ran with several fixed ones.
std::vector<Part> theory_parts(const TaskView& view, Form form) {
  std::vector<Part> parts = form == Form::kFull ? expected_parts(view) : std::vector<Part>();
  const auto curves = window_curves(view.task);
  if (curves.empty()) return parts;
  Part part{.caption = "best window of each method and drafter, best of n on these lines (* the method's fastest)",
            .table = window_table(view.results, curves)};
  if (form == Form::kFull) {
    part.notes.emplace_back(kWindowsMeaning);
    std::map<std::string, std::vector<const WindowCurve*>> methods;
    for (const WindowCurve& curve : curves) methods[curve.method].push_back(&curve);
    for (const auto& [method, of_method] : methods) {
      part.figures.push_back(
          figure_of(window_plot(view.task, of_method), "Solid: measured; dashed: the long-run latency of theory."));
    }
  }
  parts.push_back(std::move(part));
  return parts;
}

}  // namespace draftsmith::evaluate
