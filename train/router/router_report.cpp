#include "train/router/router_report.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/table.h"

namespace draftsmith::train {

namespace {

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
    return text + auc.text();
  } catch (const nlohmann::json::exception& error) {
    throw UserError({where, "is not a report of a router", "the keys that a stage of kind router writes", error.what(),
                     "train the router again"});
  }
}

}  // namespace draftsmith::train
