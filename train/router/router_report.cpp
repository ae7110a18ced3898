// The report of a router's training as JSON, text and a picture.

#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/plot.h"
#include "base/table.h"
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
  Table auc({{"AUC", Align::kLeft}, {"of rejections"}, {"of disagreement"}});
  for (const auto& [score, values] : report.at("auc").items()) {
    auc.add_row({score, shown(values.at("rejected")), shown(values.at("disagreement"))});
  }
  Table bins({{"predicted", Align::kLeft}, {"positions"}, {"mean"}, {"disagreement"}, {"rejected"}});
  for (const auto& bin : report.at("calibration")) {
    bins.add_row({fmt::format("{:.1f} to {:.1f}", bin.at("low").get<double>(), bin.at("high").get<double>()),
                  bin.at("count").dump(), shown(bin.at("predicted")), shown(bin.at("disagreement")),
                  shown(bin.at("rejected"))});
  }
  return text + auc.text() + bins.text() + fmt::format("calibration error {}\n", shown(report.at("calibration_error")));
}

std::string reliability_svg(const RouterReport& report) {
  PlotSeries diagonal{.name = "", .style = {"#888", true}};
  diagonal.line = {{0, 0, ""}, {1, 1, ""}};
  diagonal.line_width = 1;
  PlotSeries rejected{.name = "rejected tokens", .style = {"#e8963e", true}};
  PlotSeries disagreement{.name = "mean total variation", .style = {"#3a76b1", true}};
  for (const ReliabilityBin& bin : report.bins) {
    if (bin.count == 0) continue;
    const auto point = [&](double value, const char* name) {
      return PlotPoint{
          bin.predicted, value,
          fmt::format("{}: {} positions, predicted {:.3f}, {} {:.3f}", name, bin.count, bin.predicted, name, value)};
    };
    rejected.marks.push_back(point(bin.rejected, "rejected"));
    disagreement.marks.push_back(point(bin.disagreement, "disagreement"));
    disagreement.marks.back().label = std::to_string(bin.count);
  }
  const Plot plot{.label = "predicted disagreement against what came true",
                  .x_title = "predicted disagreement (numbers: positions)",
                  .y_title = "what came true",
                  .series = {diagonal, rejected, disagreement}};
  return standalone_svg(plot.svg());
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
