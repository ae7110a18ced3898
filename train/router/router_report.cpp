#include "train/router/router_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"

namespace draftsmith::train {

namespace {

constexpr int64_t kBins = 10;

// Returns a number of a report as text; null is a dash.
std::string shown(const nlohmann::json& value) {
  return value.is_null() ? "-" : fmt::format("{:.4f}", value.get<double>());
}

}  // namespace

double weighted_auc(std::span<const float> scores, std::span<const float> labels) {
  std::vector<size_t> order(scores.size());  // by rising score
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double negative_below = 0;  // mass of negatives with lower scores
  double positive = 0;
  double area = 0;
  for (size_t i = 0; i < order.size();) {
    double here_positive = 0;
    double here_negative = 0;
    for (const float score = scores[order[i]]; i < order.size() && scores[order[i]] == score; ++i) {
      here_positive += static_cast<double>(labels[order[i]]);
      here_negative += 1 - static_cast<double>(labels[order[i]]);
    }
    area += here_positive * (negative_below + here_negative / 2);
    negative_below += here_negative;
    positive += here_positive;
  }
  const double pairs = positive * negative_below;
  return pairs > 0 ? area / pairs : std::numeric_limits<double>::quiet_NaN();
}

nlohmann::ordered_json calibration(const RouterPredictions& predictions) {
  struct Bin {
    int64_t count = 0;
    double predicted = 0, disagreement = 0, rejected = 0;  // sums
  };
  std::array<Bin, kBins> bins;
  for (size_t i = 0; i < predictions.predicted.size(); ++i) {
    const auto predicted = static_cast<double>(predictions.predicted[i]);
    const auto index = std::clamp<int64_t>(static_cast<int64_t>(predicted * kBins), 0, kBins - 1);
    Bin& bin = bins[static_cast<size_t>(index)];
    ++bin.count;
    bin.predicted += predicted;
    bin.disagreement += static_cast<double>(predictions.disagreement[i]);
    bin.rejected += static_cast<double>(predictions.rejected[i]);
  }
  double sum = 0, count = 0;
  auto list = nlohmann::ordered_json::array();
  for (const Bin& bin : bins) {
    const auto own = static_cast<double>(std::max<int64_t>(1, bin.count));
    const double predicted = bin.predicted / own, disagreement = bin.disagreement / own;
    list.push_back({{"count", bin.count},
                    {"predicted", predicted},
                    {"disagreement", disagreement},
                    {"rejected", bin.rejected / own}});
    sum += static_cast<double>(bin.count) * std::abs(predicted - disagreement);
    count += static_cast<double>(bin.count);
  }
  return {{"calibration_error", finite_or_null(sum / count)}, {"calibration", std::move(list)}};
}

std::string router_report_text(const nlohmann::json& report, const std::string& where) {
  try {
    const auto count = [](const nlohmann::json& value) { return value.get<int64_t>(); };
    const int64_t test = count(report.at("test_positions"));
    std::string text = fmt::format(
        "trained on {} positions, epoch {} of {} chosen by {} others, judged by {}; cross entropy {} (always the mean: "
        "{}, least possible: {})\n",
        count(report.at("training_positions")), count(report.at("best_epoch")), count(report.at("epochs")),
        count(report.at("validation_positions")), test > 0 ? fmt::format("{} more", test) : "these too",
        shown(report.at("cross_entropy")), shown(report.at("constant_cross_entropy")),
        shown(report.at("least_cross_entropy")));
    Table auc({{"AUC", Align::kLeft}, {"of rejections"}, {"of disagreement"}});
    for (const auto& [score, values] : report.at("auc").items()) {
      auc.add_row({score, shown(values.at("rejected")), shown(values.at("disagreement"))});
    }
    Table bins({{"predicted", Align::kLeft}, {"positions"}, {"mean"}, {"disagreement"}, {"rejected"}});
    int64_t low = 0;
    for (const nlohmann::json& bin : report.at("calibration")) {
      bins.add_row(
          {fmt::format("{:.1f} to {:.1f}", static_cast<double>(low) / kBins, static_cast<double>(low + 1) / kBins),
           std::to_string(count(bin.at("count"))), shown(bin.at("predicted")), shown(bin.at("disagreement")),
           shown(bin.at("rejected"))});
      ++low;
    }
    return text + auc.text() + bins.text() +
           fmt::format("calibration error {}\n", shown(report.at("calibration_error")));
  } catch (const nlohmann::json::exception& error) {
    throw UserError({where, "is not a report of a router", "the keys that a stage of kind router writes", error.what(),
                     "train the router again"});
  }
}

}  // namespace draftsmith::train
