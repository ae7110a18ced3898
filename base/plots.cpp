#include "base/plots.h"

#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

// Returns null for an interval that is absent or has an end that is no finite number.
ordered_json interval_json(const std::optional<std::pair<double, double>>& interval) {
  if (!interval || !std::isfinite(interval->first) || !std::isfinite(interval->second)) return {};
  return {interval->first, interval->second};
}

bool is_finite(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

ordered_json series_json(const PlotSeries& series) {
  ordered_json data{{"name", series.name},
                    {"style", series.style.name},
                    {"filled", series.style.filled},
                    {"shape", series.style.shape},
                    {"marks", ordered_json::array()},
                    {"line", ordered_json::array()},
                    {"line_title", series.line_title},
                    {"line_width", series.line_width},
                    {"dashes", series.dashes}};
  for (const PlotPoint& point : series.marks) {
    if (!is_finite(point)) continue;
    data["marks"].push_back({{"x", point.x},
                             {"y", point.y},
                             {"title", point.title},
                             {"label", point.label},
                             {"key", point.key},
                             {"x_interval", interval_json(point.x_interval)},
                             {"y_interval", interval_json(point.y_interval)}});
  }
  for (const PlotPoint& point : series.line) {
    if (is_finite(point)) data["line"].push_back({point.x, point.y});
  }
  return data;
}

}  // namespace

SeriesStyle series_style(size_t index) {
  static constexpr std::array kColors{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
  constexpr size_t kShapes = 5;
  return {.filled = index < kColors.size(), .shape = index % kShapes, .name = kColors[index % kColors.size()]};
}

ordered_json Plot::json() const {
  ordered_json json{{"type", "points"},
                    {"label", label},
                    {"x", x_title},
                    {"y", y_title},
                    {"diagonal", diagonal},
                    {"levels", ordered_json::array()},
                    {"series", ordered_json::array()}};
  for (const PlotLevel& level : levels) {
    if (std::isfinite(level.y)) json["levels"].push_back({{"y", level.y}, {"text", level.text}});
  }
  for (const PlotSeries& one : series) json["series"].push_back(series_json(one));
  return json;
}

ordered_json BarPlot::json() const {
  ordered_json json{{"type", "bars"}, {"label", label}, {"unit", unit}, {"parts", ordered_json::array()}};
  for (size_t part = 0; part < parts.size(); ++part) {
    json["parts"].push_back({{"name", parts[part]}, {"style", series_style(part).name}});
  }
  json["rows"] = ordered_json::array();
  for (const Bar& bar : bars) {
    ordered_json values = ordered_json::array();
    for (const double value : bar.values) values.push_back(std::isfinite(value) && value > 0 ? value : 0);
    json["rows"].push_back({{"name", bar.name}, {"values", values}, {"total", bar.total}, {"key", bar.key}});
  }
  return json;
}

}  // namespace draftsmith
