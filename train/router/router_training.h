// Training of a router (model/kinds/router.h) on collected positions: cross entropy of the predicted disagreement
// against the soft target TV(q, p) (methods.md §2), or against the rejections; AdamW with a learning rate that falls
// linearly to 0. Two shares of the sources are held out. The weights of the epoch with the least cross entropy on the
// first are kept; the report is about the second, which chose nothing. Deterministic: batches and initial weights
// depend on the seed alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/options.h"
#include "data/router/router_data.h"
#include "model/kinds/router.h"
#include "train/router/router_metrics.h"

namespace draftsmith::train {

struct RouterTrainingOptions {
  int64_t top_k = 4;
  int64_t hidden = 32;
  bool context = true;
  std::string target = "disagreement";
  int64_t epochs = 12;
  int64_t patience = 4;
  int64_t batch_size = 256;
  double lr = 2e-3;
  double weight_decay = 0.1;
  double validation_share = 0.1;
  double test_share = 0.1;
  uint64_t seed = 1;
  double threshold = 0.8;
  int64_t max_draft = 16;
  static Fields<RouterTrainingOptions> fields();
};

// Measures on the test positions. Cross entropies are in nats per position, against the target of training.
struct RouterReport {
  std::string target;  // RouterTrainingOptions::target
  int64_t training_positions = 0;
  int64_t validation_positions = 0;  // that chose the epoch
  int64_t test_positions = 0;        // that the measures are about; 0: those that chose the epoch
  int64_t epochs = 0;                // that were run
  int64_t best_epoch = 0;            // counted from 1
  double cross_entropy = 0;
  double constant_cross_entropy = 0;  // of always predicting the mean target: an upper bound for a useful router
  double least_cross_entropy = 0;     // of predicting each target itself: the lower bound
  double mean_disagreement = 0;
  double rejected = 0;  // share of drafted tokens
  // Ranking of positions by each score: against the token's rejection in decoding, and against the soft target.
  struct Auc {
    std::string score;  // router, entropy, max_probability (its complement)
    double rejected = 0;
    double disagreement = 0;
  };
  std::vector<Auc> auc;
  // Gain of the router's AUC over that of max_probability. NaN where all labels are the same.
  struct Gain {
    AucGain rejected;
    AucGain disagreement;
  } gain;
  double calibration_error = 0;  // against the target of training
  std::vector<ReliabilityBin> bins;
};

struct TrainedRouter {
  model::Router router;
  RouterReport report;
};

// The drafter that a router is trained for.
struct RoutedDrafter {
  const model::TransformerModel& model;
  std::string name;  // for messages
  std::string hash;  // model::model_hash()
};

// Called after each epoch with (epochs run, validation cross entropy).
using OnRouterEpoch = std::function<void(int64_t epochs, double cross_entropy)>;

// Trains a router. Errors: UserError naming both sides if the data were collected with another drafter, hold fewer
// tokens per position than top_k, or are too few to be divided.
TrainedRouter train_router(const data::RouterData& data, const RoutedDrafter& drafter,
                           const RouterTrainingOptions& options, const OnRouterEpoch& on_epoch = {});

// Return the report as router_report.json, as lines of text, and as a picture of predictions against outcomes.
nlohmann::ordered_json to_json(const RouterReport& report);
std::string report_text(const RouterReport& report);
std::string reliability_svg(const RouterReport& report);
// Reads a router_report.json, whose scores come in the order of their names. Errors: UserError for missing keys and
// other types.
RouterReport load_router_report(const std::filesystem::path& file);

}  // namespace draftsmith::train
