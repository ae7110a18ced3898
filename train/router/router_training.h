// Training of a router (model/models/router.h) on collected positions: cross entropy of the predicted disagreement
// against the soft target TV(q, p) (methods.md §2); AdamW with a learning rate that falls linearly to 0. Two shares of
// the sources are held out. The weights of the epoch with the least cross entropy on the first are kept; the report is
// about the second, which chose nothing. Deterministic: batches and initial weights depend on the seed alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/options.h"
#include "data/router/router_data.h"
#include "model/models/router.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::train {

struct RouterTrainingOptions {
  int64_t top_k = 4;
  int64_t hidden = 32;
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

struct TrainedRouter {
  model::Router router;
  // router_report.json: numbers of positions by purpose and of epochs; on the test positions (or, without any, on those
  // that chose the epoch) the cross entropy in nats per position beside that of always predicting the mean target
  // (`constant`) and of predicting each target itself (`least`), AUC of the router, the entropy and the complement of
  // the largest probability, for rejections in decoding and for the soft target.
  nlohmann::ordered_json report;
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

// Returns the area under the ROC curve for labels in [0,1]: the probability that a positive item has a higher score
// than a negative one, plus half the probability that they are equal. An item of label w counts w times as positive and
// 1 - w times as negative (also against itself). For labels 0 and 1 this is the usual AUC; for soft labels, its
// expectation over drawn labels, except for pairs of an item with itself. NaN without positive or without negative
// mass.
double weighted_auc(std::span<const float> scores, std::span<const float> labels);

// Returns a router_report.json as lines of text. `where` names it in messages. Errors: UserError for missing keys and
// other types.
std::string router_report_text(const nlohmann::json& report, const std::string& where);

}  // namespace draftsmith::train
