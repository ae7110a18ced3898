#include "evaluate/report/section_windows.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/html.h"
#include "base/svg.h"
#include "base/text_table.h"
#include "evaluate/report/run_table.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Runs of one method and drafter that differ in nothing but the window, by rising window.
struct Curve {
  std::string method;   // with its other parameters: "speculative T=1"
  std::string drafter;  // Setting::drafter_label()
  std::vector<const ordered_json*> runs;

  const ordered_json& best() const {
    return **std::max_element(runs.begin(), runs.end(), [](const auto* a, const auto* b) {
      return a->at("speed").at("speedup_total") < b->at("speed").at("speedup_total");
    });
  }
};

int64_t window_of(const ordered_json& run) {
  return run.at("params").at("window");
}

std::string method_of(const ordered_json& run) {
  static const std::set<std::string> kOfDrafting{"model", "drafter", "exits", "exit_layer"};
  std::string text = run.at("method");
  for (const auto& [key, value] : run.at("params").items()) {
    if (kOfDrafting.contains(key) || key == "window" || key == "window_rule") continue;
    text += fmt::format(" {}={}",
                        key == "temperature"   ? "T"
                        : key == "num_samples" ? "samples"
                                               : key,
                        value.is_number()   ? fmt::format("{:g}", value.get<double>())
                        : value.is_string() ? value.get<std::string>()
                                            : value.dump());
  }
  return text;
}

std::vector<Curve> curves_of(const ordered_json& task) {
  std::vector<Curve> curves;
  for (const auto& run : task.at("runs")) {
    const bool fixed = run.contains("predicted") && run.at("predicted").contains("long_run_ms");
    if (!fixed || !run.at("params").contains("window")) continue;
    const std::string method = method_of(run);
    const std::string drafter = run.at("drafting");
    auto found = std::find_if(curves.begin(), curves.end(),
                              [&](const Curve& curve) { return curve.method == method && curve.drafter == drafter; });
    if (found == curves.end()) found = curves.insert(curves.end(), {method, drafter, {}});
    found->runs.push_back(&run);
  }
  std::erase_if(curves, [](const Curve& curve) { return curve.runs.size() < 2; });
  for (Curve& curve : curves) {
    std::sort(curve.runs.begin(), curve.runs.end(),
              [](const auto* a, const auto* b) { return window_of(*a) < window_of(*b); });
  }
  std::stable_sort(curves.begin(), curves.end(), [](const Curve& a, const Curve& b) { return a.method < b.method; });
  return curves;
}

// How many times smaller than the model that it drafts for; empty for drafters without parameters.
std::string scaling(const ordered_json& parameters, const ordered_json& params) {
  const std::string drafter = params.value("drafter", "");
  const std::string model = params.value("model", "target");
  if (!parameters.contains(drafter) || !parameters.contains(model)) return "";
  return fmt::format("{:.1f}x", parameters.at(model).get<double>() / parameters.at(drafter).get<double>());
}

std::vector<std::string> row_of(const Curve& curve, bool fastest, const ordered_json& parameters) {
  const ordered_json& run = curve.best();
  const ordered_json& speed = run.at("speed");
  return {curve.method,
          curve.drafter + (fastest ? " *" : ""),
          scaling(parameters, run.at("params")),
          std::to_string(window_of(run)),
          fixed(run.at("acceptance").at("alpha"), 3),
          fixed(speed.at("speedup_total"), 2),
          fixed(run.at("predicted").at("speedup"), 2),
          fixed(speed.at("decode_ms_per_token"), 3),
          fixed(run.at("predicted").at("long_run_ms"), 3),
          fixed(run.at("predicted").at("e_pt_ms"), 3)};
}

// Autoregressive decoding: the run that this one is compared with.
std::vector<std::string> baseline_row(const ordered_json& run) {
  return {run.at("name"),
          "",
          "1x",
          "0",
          "",
          fixed(run.at("speed").at("speedup_total"), 2),
          "",
          fixed(run.at("speed").at("decode_ms_per_token"), 3),
          "",
          ""};
}

const ordered_json& run_named(const ordered_json& task, const std::string& name) {
  for (const auto& run : task.at("runs")) {
    if (run.at("name") == name) return run;
  }
  return task.at("baseline");
}

std::vector<std::vector<std::string>> rows_of(const ordered_json& task, const std::vector<Curve>& curves,
                                              const ordered_json& parameters) {
  std::map<std::string, const Curve*> fastest;
  for (const Curve& curve : curves) {
    const Curve*& best = fastest[curve.method];
    const auto speed = [](const Curve& of) { return of.best().at("speed").at("speedup_total").get<double>(); };
    if (best == nullptr || speed(curve) > speed(*best)) best = &curve;
  }
  std::vector<std::vector<std::string>> rows;
  std::string method;
  for (const Curve& curve : curves) {
    if (curve.method != method) rows.push_back(baseline_row(run_named(task, curve.best().at("baseline"))));
    method = curve.method;
    rows.push_back(row_of(curve, fastest.at(method) == &curve, parameters));
  }
  return rows;
}

const std::vector<Column>& columns() {
  static const std::vector<Column> kAll{{"method", Align::kLeft},
                                        {"drafter", Align::kLeft},
                                        {"scaling"},
                                        {"best K"},
                                        {"alpha"},
                                        {"speedup"},
                                        {"theory"},
                                        {"ms/token"},
                                        {"long-run"},
                                        {"E_pt"}};
  return kAll;
}

double latency(const ordered_json& run, const char* which) {
  return std::string(which) == "measured" ? run.at("speed").at("decode_ms_per_token").get<double>()
                                          : run.at("predicted").at(which).get<double>();
}

std::string polyline(const Curve& curve, const char* which, const Scale& x, const Scale& y, const std::string& style) {
  std::string points;
  for (const auto* run : curve.runs) {
    points += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(window_of(*run))), y(latency(*run, which)));
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" {}><title>{} {}</title></polyline>\n", points, style,
                     escape_html(curve.drafter), which);
}

// Latency by window of one method's drafters: solid as measured, dashed the long-run latency; across, decoding without
// a drafter.
std::string plot(const std::string& method, const std::vector<const Curve*>& curves, double without) {
  constexpr double kLeft = 60;
  constexpr double kBottom = 320;
  double low = without;
  double high = without;
  int64_t widest = 1;
  for (const Curve* curve : curves) {
    for (const auto* run : curve->runs) {
      for (const char* which : {"measured", "long_run_ms"}) {
        low = std::min(low, latency(*run, which));
        high = std::max(high, latency(*run, which));
      }
      widest = std::max(widest, window_of(*run));
    }
  }
  const Scale x(1, static_cast<double>(widest), kLeft, kPlotWidth - 160);
  const Scale y(low, high, kBottom, 20);
  std::string svg = open_svg(360, "latency by window, " + escape_html(method)) + axes(x, y, kLeft, kBottom);
  svg += svg_line(kLeft, y(without), kPlotWidth - 160, y(without), "whisker");
  svg += svg_text(kLeft + 4, y(without) - 4, "autoregressive");
  for (size_t i = 0; i < curves.size(); ++i) {
    const auto [color, filled] = series_style(i);
    const double width = filled ? 2 : 0.8;  // dashes are the long-run latency's
    svg += polyline(*curves[i], "measured", x, y, fmt::format("stroke=\"{}\" stroke-width=\"{}\"", color, width));
    svg += polyline(*curves[i], "long_run_ms", x, y, fmt::format("stroke=\"{}\" stroke-dasharray=\"3 4\"", color));
    const double top = 24 + 18 * static_cast<double>(i);
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"{}\" fill=\"{}\"/>\n", kPlotWidth - 136, top,
                       2 * width, color);
    svg += svg_text(kPlotWidth - 118, top + 6, curves[i]->drafter);
  }
  svg += svg_text(kLeft, 12, "ms per token without prefill, " + method + ": solid measured, dashed long-run latency");
  return svg + svg_text(kPlotWidth / 2, 352, "K, drafted tokens", "middle") + "</svg>\n";
}

}  // namespace

std::string window_table(const ordered_json& task, const ordered_json& parameters) {
  const auto curves = curves_of(task);
  if (curves.empty()) return "";
  TextTable table(columns(), kResultsWidth);
  for (auto& row : rows_of(task, curves, parameters)) table.add_row(std::move(row));
  return fmt::format("best window of each method and drafter (* the method's fastest)\n{}", table.str());
}

std::string window_section(const ordered_json& task, const ordered_json& parameters) {
  const auto curves = curves_of(task);
  if (curves.empty()) return "";
  std::string html = "<h3>Best window of each method and drafter</h3>\n<table>\n<tr>";
  for (const Column& column : columns()) html += fmt::format("<th>{}</th>", column.header);
  html += "</tr>\n";
  for (const auto& row : rows_of(task, curves, parameters)) {
    html += "<tr>";
    for (const std::string& cell : row) html += fmt::format("<td>{}</td>", escape_html(cell));
    html += "</tr>\n";
  }
  html +=
      "</table>\n<p>ms/token as measured without encoder and prefill; long-run and E_pt are what theory says of it "
      "from alpha and the times of single steps. E_pt averages over iterations: only the long-run latency predicts "
      "a speed.</p>\n";
  std::map<std::string, std::vector<const Curve*>> methods;
  for (const Curve& curve : curves) methods[curve.method].push_back(&curve);
  for (const auto& [method, of_method] : methods) {
    const ordered_json& without = run_named(task, of_method.front()->best().at("baseline"));
    html += plot(method, of_method, without.at("speed").at("decode_ms_per_token"));
  }
  return html;
}

}  // namespace draftsmith::evaluate
