// The report of a router's training as JSON, text and a picture.

#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/svg.h"
#include "base/text_table.h"
#include "train/router/router_training.h"

namespace draftsmith::train {

namespace {

using nlohmann::ordered_json;

// A share without items is null.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

std::string shown(const nlohmann::json& value) {
  return value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : "-";
}

}  // namespace

ordered_json to_json(const RouterReport& report) {
  ordered_json json{{"target", report.target},
                    {"training_positions", report.training_positions},
                    {"validation_positions", report.validation_positions},
                    {"epochs", report.epochs},
                    {"best_epoch", report.best_epoch},
                    {"cross_entropy", number(report.cross_entropy)},
                    {"constant_cross_entropy", number(report.constant_cross_entropy)},
                    {"least_cross_entropy", number(report.least_cross_entropy)},
                    {"mean_disagreement", number(report.mean_disagreement)},
                    {"rejected", number(report.rejected)},
                    {"calibration_error", number(report.calibration_error)}};
  for (const auto& auc : report.auc) {
    json["auc"][auc.score] = {{"rejected", number(auc.rejected)}, {"disagreement", number(auc.disagreement)}};
  }
  json["calibration"] = ordered_json::array();
  for (const ReliabilityBin& bin : report.bins) {
    json["calibration"].push_back({{"low", bin.low},
                                   {"high", bin.high},
                                   {"count", bin.count},
                                   {"predicted", number(bin.predicted)},
                                   {"disagreement", number(bin.disagreement)},
                                   {"rejected", number(bin.rejected)}});
  }
  return json;
}

std::string report_text(const nlohmann::json& report) {
  std::string text = fmt::format(
      "trained for {} on {} positions, judged on {} others; cross entropy {} (always the mean: {}, least possible: "
      "{})\n",
      report.at("target").get<std::string>(), report.at("training_positions").dump(),
      report.at("validation_positions").dump(), shown(report.at("cross_entropy")),
      shown(report.at("constant_cross_entropy")), shown(report.at("least_cross_entropy")));
  TextTable auc({{"AUC", Align::kLeft}, {"of rejections"}, {"of disagreement"}});
  for (const auto& [score, values] : report.at("auc").items()) {
    auc.add_row({score, shown(values.at("rejected")), shown(values.at("disagreement"))});
  }
  TextTable bins({{"predicted", Align::kLeft}, {"positions"}, {"mean"}, {"disagreement"}, {"rejected"}});
  for (const auto& bin : report.at("calibration")) {
    bins.add_row({fmt::format("{:.1f} to {:.1f}", bin.at("low").get<double>(), bin.at("high").get<double>()),
                  bin.at("count").dump(), shown(bin.at("predicted")), shown(bin.at("disagreement")),
                  shown(bin.at("rejected"))});
  }
  return text + auc.str() + bins.str() + fmt::format("calibration error {}\n", shown(report.at("calibration_error")));
}

std::string reliability_svg(const RouterReport& report) {
  constexpr double kLeft = 60;
  constexpr double kBottom = 340;
  const Scale x(0, 1, kLeft, kPlotWidth - 20);
  const Scale y(0, 1, kBottom, 20);
  std::string svg = open_svg(390, "predicted disagreement against what came true");
  svg.replace(0, 5, "<svg xmlns=\"http://www.w3.org/2000/svg\" ");
  svg += "<style>text{font:12px system-ui,sans-serif}.grid{stroke:#e3e8ec}.whisker{stroke:#888}</style>\n";
  svg += axes(x, y, kLeft, kBottom) + svg_line(x(0), y(0), x(1), y(1), "whisker");
  for (const ReliabilityBin& bin : report.bins) {
    if (bin.count == 0) continue;
    const auto mark = [&](double value, const char* color, const char* name) {
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"><title>{}: {} positions, predicted {:.3f}, {} "
          "{:.3f}</title></circle>\n",
          x(bin.predicted), y(value), color, name, bin.count, bin.predicted, name, value);
    };
    mark(bin.rejected, "#e8963e", "rejected");
    mark(bin.disagreement, "#3a76b1", "disagreement");
    svg += svg_text(x(bin.predicted), y(bin.disagreement) - 9, std::to_string(bin.count), "middle");
  }
  svg += svg_text(kPlotWidth / 2, 378, "predicted disagreement (numbers: positions)", "middle");
  return svg + svg_text(8, 12, "blue: mean total variation, orange: rejected tokens") + "</svg>\n";
}

nlohmann::json load_router_report(const std::filesystem::path& file) {
  nlohmann::json json = load_json(file);
  const auto wrong = [&](const std::string& key) {
    throw UserError({file.string(), "is not a report of a router", "the key " + key, "none, or of another type",
                     "the stage of kind router writes it"});
  };
  for (const char* key : {"training_positions", "validation_positions", "cross_entropy", "constant_cross_entropy",
                          "least_cross_entropy", "calibration_error"}) {
    if (!json.is_object() || !json.contains(key) || !(json.at(key).is_number() || json.at(key).is_null())) wrong(key);
  }
  if (!json.contains("target") || !json.at("target").is_string()) wrong("target");
  if (!json.contains("auc") || !json.at("auc").is_object()) wrong("auc");
  for (const auto& entry : json.at("auc").items()) {
    if (!entry.value().is_object() || !entry.value().contains("rejected") || !entry.value().contains("disagreement")) {
      wrong("auc." + entry.key());
    }
  }
  if (!json.contains("calibration") || !json.at("calibration").is_array()) wrong("calibration");
  for (const auto& bin : json.at("calibration")) {
    for (const char* key : {"low", "high", "count", "predicted", "disagreement", "rejected"}) {
      if (!bin.is_object() || !bin.contains(key)) wrong(std::string("calibration.") + key);
    }
    if (!bin.at("low").is_number() || !bin.at("high").is_number()) wrong("calibration.low");
  }
  return json;
}

}  // namespace draftsmith::train
