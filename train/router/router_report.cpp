// The report of a router's training as JSON, text and a picture.

#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "base/plots.h"
#include "base/table.h"
#include "train/router/router_training.h"

namespace draftsmith::train {

namespace {

using nlohmann::ordered_json;

// Returns a share as text; one without items is a dash.
std::string shown(double value) {
  return std::isfinite(value) ? fmt::format("{:.4f}", value) : "-";
}

// Returns a number of the object; NaN for null and a missing key.
double number_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

int64_t count_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<int64_t>() : 0;
}

constexpr const char* kGain = "gain_over_max_probability";

ordered_json to_json(const AucGain& gain) {
  return {
      {"value", finite_or_null(gain.value)}, {"low", finite_or_null(gain.low)}, {"high", finite_or_null(gain.high)}};
}

AucGain gain_at(const nlohmann::json& report, const char* key) {
  const nlohmann::json& gain = report.at(kGain).at(key);
  return {number_at(gain, "value"), number_at(gain, "low"), number_at(gain, "high")};
}

std::string gain_text(const RouterReport::Gain& gain) {
  const auto text = [](const AucGain& one) {
    return fmt::format("{:+.4f} [{:+.4f}, {:+.4f}]", one.value, one.low, one.high);
  };
  if (!std::isfinite(gain.rejected.value) || !std::isfinite(gain.disagreement.value)) return "";
  return fmt::format(
      "the router's AUC less that of the largest probability alone: of rejections {}, of disagreement {} (95 % "
      "bootstrap intervals over sources)\n",
      text(gain.rejected), text(gain.disagreement));
}

// Throws UserError unless the keys that report_text() shows are there.
void check_report(const nlohmann::json& json, const std::filesystem::path& file) {
  const auto wrong = [&](const std::string& key) {
    throw UserError({file.string(), "is not a report of a router", "the key " + key, "none, or of another type",
                     "the stage of kind router writes it"});
  };
  for (const char* key : {"training_positions", "validation_positions", "test_positions", "cross_entropy",
                          "constant_cross_entropy", "least_cross_entropy", "calibration_error"}) {
    if (!json.is_object() || !json.contains(key) || !(json.at(key).is_number() || json.at(key).is_null())) wrong(key);
  }
  if (!json.contains("target") || !json.at("target").is_string()) wrong("target");
  if (!json.contains("auc") || !json.at("auc").is_object()) wrong("auc");
  for (const auto& entry : json.at("auc").items()) {
    if (!entry.value().is_object() || !entry.value().contains("rejected") || !entry.value().contains("disagreement")) {
      wrong("auc." + entry.key());
    }
  }
  const nlohmann::json gains = json.value(kGain, nlohmann::json());
  for (const char* key : {"rejected", "disagreement"}) {
    if (!gains.is_object() || !gains.contains(key) || !gains.at(key).is_object()) {
      wrong(std::string(kGain) + "." + key);
    }
  }
  if (!json.contains("calibration") || !json.at("calibration").is_array()) wrong("calibration");
  for (const auto& bin : json.at("calibration")) {
    for (const char* key : {"low", "high", "count", "predicted", "disagreement", "rejected"}) {
      if (!bin.is_object() || !bin.contains(key)) wrong(std::string("calibration.") + key);
    }
    if (!bin.at("low").is_number() || !bin.at("high").is_number()) wrong("calibration.low");
  }
}

}  // namespace

ordered_json to_json(const RouterReport& report) {
  ordered_json json{{"target", report.target},
                    {"training_positions", report.training_positions},
                    {"validation_positions", report.validation_positions},
                    {"test_positions", report.test_positions},
                    {"epochs", report.epochs},
                    {"best_epoch", report.best_epoch},
                    {"cross_entropy", finite_or_null(report.cross_entropy)},
                    {"constant_cross_entropy", finite_or_null(report.constant_cross_entropy)},
                    {"least_cross_entropy", finite_or_null(report.least_cross_entropy)},
                    {"mean_disagreement", finite_or_null(report.mean_disagreement)},
                    {"rejected", finite_or_null(report.rejected)},
                    {"calibration_error", finite_or_null(report.calibration_error)}};
  for (const auto& auc : report.auc) {
    json["auc"][auc.score] = {{"rejected", finite_or_null(auc.rejected)},
                              {"disagreement", finite_or_null(auc.disagreement)}};
  }
  json[kGain] = {{"rejected", to_json(report.gain.rejected)}, {"disagreement", to_json(report.gain.disagreement)}};
  json["calibration"] = ordered_json::array();
  for (const ReliabilityBin& bin : report.bins) {
    json["calibration"].push_back({{"low", bin.low},
                                   {"high", bin.high},
                                   {"count", bin.count},
                                   {"predicted", finite_or_null(bin.predicted)},
                                   {"disagreement", finite_or_null(bin.disagreement)},
                                   {"rejected", finite_or_null(bin.rejected)}});
  }
  return json;
}

std::string report_text(const RouterReport& report) {
  std::string text = fmt::format(
      "trained for {} on {} positions, epoch {} of {} chosen by {} others, judged by {}; cross entropy {} (always the "
      "mean: {}, least possible: {})\n",
      report.target, report.training_positions, report.best_epoch, report.epochs, report.validation_positions,
      report.test_positions > 0 ? fmt::format("{} more", report.test_positions) : "these too",
      shown(report.cross_entropy), shown(report.constant_cross_entropy), shown(report.least_cross_entropy));
  Table auc({{"AUC", Align::kLeft}, {"of rejections"}, {"of disagreement"}});
  for (const auto& one : report.auc) auc.add_row({one.score, shown(one.rejected), shown(one.disagreement)});
  Table bins({{"predicted", Align::kLeft}, {"positions"}, {"mean"}, {"disagreement"}, {"rejected"}});
  for (const ReliabilityBin& bin : report.bins) {
    bins.add_row({fmt::format("{:.1f} to {:.1f}", bin.low, bin.high), std::to_string(bin.count), shown(bin.predicted),
                  shown(bin.disagreement), shown(bin.rejected)});
  }
  return text + auc.text() + gain_text(report.gain) + bins.text() +
         fmt::format("calibration error {}\n", shown(report.calibration_error));
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

RouterReport load_router_report(const std::filesystem::path& file) {
  const nlohmann::json json = load_json(file);
  check_report(json, file);
  RouterReport report;
  report.target = json.at("target").get<std::string>();
  report.training_positions = count_at(json, "training_positions");
  report.validation_positions = count_at(json, "validation_positions");
  report.test_positions = count_at(json, "test_positions");
  report.epochs = count_at(json, "epochs");
  report.best_epoch = count_at(json, "best_epoch");
  report.cross_entropy = number_at(json, "cross_entropy");
  report.constant_cross_entropy = number_at(json, "constant_cross_entropy");
  report.least_cross_entropy = number_at(json, "least_cross_entropy");
  report.mean_disagreement = number_at(json, "mean_disagreement");
  report.rejected = number_at(json, "rejected");
  report.calibration_error = number_at(json, "calibration_error");
  for (const auto& [score, values] : json.at("auc").items()) {
    report.auc.push_back({score, number_at(values, "rejected"), number_at(values, "disagreement")});
  }
  report.gain = {gain_at(json, "rejected"), gain_at(json, "disagreement")};
  for (const auto& bin : json.at("calibration")) {
    report.bins.push_back({number_at(bin, "low"), number_at(bin, "high"), count_at(bin, "count"),
                           number_at(bin, "predicted"), number_at(bin, "disagreement"), number_at(bin, "rejected")});
  }
  return report;
}

}  // namespace draftsmith::train
