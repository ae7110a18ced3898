#include "train/router/router_training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/signals.h"
#include "base/table.h"
#include "train/optimizers/optimizer.h"

namespace draftsmith::train {
namespace {

void check_data(const data::RouterData& data, const RoutedDrafter& drafter, const RouterTrainingOptions& options) {
  Problems problems;
  const data::RouterDataInfo& info = data.info();
  if (info.drafter_hash != drafter.hash) {
    const auto name = info.provenance.find("drafter");
    problems.add(
        {.where = "router data",
         .what = "the positions were collected with another drafter",
         .expected = fmt::format("drafter {} (sha256 {})", drafter.name, drafter.hash.substr(0, 16)),
         .found = fmt::format("drafter {} (sha256 {})", name == info.provenance.end() ? "unknown" : name->second,
                              info.drafter_hash.substr(0, 16)),
         .hint = "collect them with this drafter: stage router-data"});
  }
  if (options.top_k > info.top_k) {
    problems.add({.where = "router data",
                  .what = "the positions hold fewer likely tokens than the router is to read",
                  .expected = fmt::format("top_k = {} tokens or more", options.top_k),
                  .found = fmt::format("{} tokens", info.top_k),
                  .hint = "lower top_k, or collect more in the router-data stage"});
  }
  problems.throw_if_any();
}

// Positions that a router is trained and judged on; values of one index belong together.
struct RouterPositions {
  model::RouterFeatures features;
  at::Tensor disagreement;  // fp32 [N]
  at::Tensor rejected;      // fp32 [N], 0 or 1

  int64_t size() const { return disagreement.numel(); }
  // Returns the positions `rows` int64 [n].
  RouterPositions at(const at::Tensor& rows) const {
    const auto chosen = [&](const at::Tensor& values) { return values.index_select(0, rows); };
    return {{chosen(features.entropy), chosen(features.probabilities), chosen(features.ids)},
            chosen(disagreement),
            chosen(rejected)};
  }
};

// Returns the data's positions with their first k tokens.
RouterPositions positions_of(const data::RouterData& data, int64_t k) {
  const data::RouterRows& rows = data.rows();
  const auto first_tokens = [&](const at::Tensor& values) {
    return values.view({rows.size(), data.info().top_k}).narrow(1, 0, k);
  };
  return {{at::tensor(rows.entropy, at::kFloat), first_tokens(at::tensor(rows.probabilities, at::kFloat)),
           first_tokens(at::tensor(rows.ids, at::kInt)).to(at::kLong)},
          at::tensor(rows.disagreement, at::kFloat),
          at::tensor(rows.rejected, at::kInt).to(at::kFloat)};
}

// Positions by purpose.
struct RouterSplit {
  RouterPositions training;
  RouterPositions validation;
  RouterPositions test;
};

// Returns the sources with positions in an order that depends on the seed alone.
std::vector<int32_t> shuffled_sources(const data::RouterData& data, uint64_t seed) {
  const CounterRandom random(seed, "router/validation");
  std::vector<int32_t> sources = data.rows().examples;  // rising
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  const auto place = [&](int32_t source) { return random.uniform(static_cast<uint64_t>(source)); };
  std::stable_sort(sources.begin(), sources.end(), [&](int32_t a, int32_t b) { return place(a) < place(b); });
  return sources;
}

// Divides the positions by source, so that no text is on two sides. A share above 0 holds one source at least, and the
// division depends on the seed alone. Errors: UserError if no source is left to train on.
RouterSplit split_by_source(const data::RouterData& data, const RouterTrainingOptions& options) {
  const std::vector<int32_t> sources = shuffled_sources(data, options.seed);
  const auto count_of = [&](double share) {
    return share == 0 ? 0 : std::max<int64_t>(1, std::llround(share * static_cast<double>(sources.size())));
  };
  const int64_t validation = count_of(options.validation_share);
  const int64_t test = count_of(options.test_share);
  std::map<int32_t, int64_t> place;
  for (const int32_t source : sources) place.emplace(source, std::ssize(place));
  std::array<std::vector<int64_t>, 3> parts;  // of training, validation and test
  for (int64_t n = 0; n < data.rows().size(); ++n) {
    const int64_t at = place.at(data.rows().examples[static_cast<size_t>(n)]);
    parts[at < validation ? 1 : at < validation + test ? 2 : 0].push_back(n);
  }
  if (parts[0].empty()) {
    throw UserError(
        {.where = "router data",
         .what = "there are too few positions to train on some, to choose by others and to judge by a third part",
         .expected = fmt::format("sources in each part, with validation_share = {:g} and test_share = {:g}",
                                 options.validation_share, options.test_share),
         .found = fmt::format("{} positions of {} sources", data.rows().size(), data.info().examples),
         .hint = "decode more sources in the router-data stage"});
  }
  const RouterPositions all = positions_of(data, options.top_k);
  const auto part = [&](size_t purpose) { return all.at(at::tensor(parts[purpose], at::kLong)); };
  return {part(0), part(1), part(2)};
}

class RouterTrainer {
 public:
  // Reports on `test` or, if it has no positions, on `validation`.
  RouterTrainer(const RouterSplit& positions, const RoutedDrafter& drafter, const RouterTrainingOptions& options)
      : training_(positions.training),
        validation_(positions.validation),
        test_(positions.test),
        drafter_(drafter),
        options_(options),
        router_(config(), options.seed) {
    OptimizerOptions adamw;
    adamw.lr = options.lr;
    adamw.weight_decay = options.weight_decay;
    for (const auto& entry : router_.parameters()) entry.second.requires_grad_(true);
    optimizer_ = make_optimizer(router_.parameters(), adamw);
  }

  TrainedRouter run(const OnRouterEpoch& on_epoch) {
    int64_t epochs = 0, best_epoch = 0;
    double best = std::numeric_limits<double>::infinity();
    std::map<std::string, at::Tensor> kept;
    while (epochs < options_.epochs && epochs - best_epoch < options_.patience) {
      train_epoch(epochs++);
      const double loss = cross_entropy(predict(validation_), validation_);
      if (on_epoch) on_epoch(epochs, loss);
      if (!(loss < best)) continue;
      best = loss;
      best_epoch = epochs;
      for (const auto& [name, value] : router_.parameters()) kept[name] = value.detach().clone();
    }
    if (kept.empty()) {
      throw RunError({.where = "router training",
                      .what = "the cross entropy is not a number",
                      .expected = "a finite loss",
                      .found = "NaN",
                      .hint = "lower lr"});
    }
    router_ = model::Router(router_.config(), std::move(kept), "trained router");
    return {router_, report(epochs, best_epoch)};
  }

 private:
  model::RouterConfig config() const {
    const auto& shape = drafter_.model.config();
    const at::Tensor ids = training_.features.ids.narrow(0, 0, std::min<int64_t>(4096, training_.size()));
    const at::Tensor rows = drafter_.model.token_embeddings(ids.masked_select(ids.ge(0)));  // [n,D]
    const double size = std::sqrt(rows.pow(2).sum(1).mean().item<double>());
    return {.top_k = options_.top_k,
            .hidden = options_.hidden,
            .width = shape.width,
            .vocabulary = shape.vocabulary,
            .embedding_scale = size > 0 && std::isfinite(size) ? 1 / size : 1.0,
            .drafter = drafter_.name,
            .drafter_hash = drafter_.hash,
            .threshold = options_.threshold,
            .max_draft = options_.max_draft};
  }

  // Logits [N] of the positions.
  at::Tensor logits(const RouterPositions& positions) const {
    const model::RouterFeatures& features = positions.features;
    const at::Tensor embeddings = drafter_.model.token_embeddings(features.ids.clamp_min(0)).to(at::kCPU);  // [n,k,D]
    return router_.logits(features, embeddings);
  }

  void train_epoch(int64_t epoch) {
    const int64_t batches = (training_.size() + options_.batch_size - 1) / options_.batch_size;
    const at::Tensor order = shuffled(epoch);
    for (int64_t batch = 0; batch < batches; ++batch) {
      work_point();
      const int64_t first = batch * options_.batch_size;
      const RouterPositions rows =
          training_.at(order.narrow(0, first, std::min(options_.batch_size, training_.size() - first)));
      const at::Tensor loss =
          at::binary_cross_entropy_with_logits(logits(rows), rows.disagreement, {}, {}, at::Reduction::Sum);
      loss.backward();
      const double left =
          1 - static_cast<double>(epoch * batches + batch) / static_cast<double>(options_.epochs * batches);
      optimizer_->step(options_.lr * left, 1.0 / static_cast<double>(rows.size()));
      optimizer_->zero_grad();
    }
  }

  // Positions in an order that depends on (seed, epoch) alone. int64 [N]
  at::Tensor shuffled(int64_t epoch) const {
    const CounterRandom random(options_.seed, fmt::format("router/order/{}", epoch));
    at::Tensor order = at::arange(training_.size(), at::kLong);
    auto* ids = order.mutable_data_ptr<int64_t>();
    for (int64_t i = training_.size(); i > 1; --i) {
      std::swap(ids[i - 1], ids[random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(i))]);
    }
    return order;
  }

  // P(disagreement) at all positions. fp32 [N]
  at::Tensor predict(const RouterPositions& positions) const {
    const at::NoGradGuard no_gradients;
    constexpr int64_t kAtOnce = 8192;
    std::vector<at::Tensor> parts;
    for (int64_t first = 0; first < positions.size(); first += kAtOnce) {
      work_point();
      const int64_t count = std::min(kAtOnce, positions.size() - first);
      parts.push_back(at::sigmoid(logits(positions.at(at::arange(first, first + count, at::kLong)))));
    }
    return at::cat(parts);
  }

  double cross_entropy(const at::Tensor& predicted, const RouterPositions& positions) const {
    return at::binary_cross_entropy(predicted.to(at::kDouble), positions.disagreement.to(at::kDouble)).item<double>();
  }

  nlohmann::ordered_json report(int64_t epochs, int64_t best_epoch) const {
    const RouterPositions& judged = test_.size() > 0 ? test_ : validation_;
    const at::Tensor predicted = predict(judged).contiguous();
    const at::Tensor labels = judged.disagreement.to(at::kDouble);
    const double mean = labels.mean().item<double>();
    nlohmann::ordered_json json{
        {"training_positions", training_.size()},
        {"validation_positions", validation_.size()},
        {"test_positions", test_.size()},
        {"epochs", epochs},
        {"best_epoch", best_epoch},
        {"cross_entropy", finite_or_null(cross_entropy(predicted, judged))},
        {"constant_cross_entropy", finite_or_null(cross_entropy(at::full_like(labels, mean), judged))},
        {"least_cross_entropy", finite_or_null(cross_entropy(labels, judged))},
        {"mean_disagreement", finite_or_null(mean)},
        {"rejected", finite_or_null(judged.rejected.to(at::kDouble).mean().item<double>())}};
    const auto numbers = [](const at::Tensor& values) {
      return std::span(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()));
    };
    const auto add = [&](const char* score, const at::Tensor& values) {
      json["auc"][score] = {
          {"rejected", finite_or_null(weighted_auc(numbers(values), numbers(judged.rejected)))},
          {"disagreement", finite_or_null(weighted_auc(numbers(values), numbers(judged.disagreement)))}};
    };
    const at::Tensor unsure = (1 - judged.features.probabilities.select(1, 0)).contiguous();
    add("router", predicted);
    add("entropy", judged.features.entropy);
    add("max_probability", unsure);
    return json;
  }

  const RouterPositions& training_;
  const RouterPositions& validation_;
  const RouterPositions& test_;
  const RoutedDrafter& drafter_;
  const RouterTrainingOptions& options_;
  model::Router router_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

Fields<RouterTrainingOptions> RouterTrainingOptions::fields() {
  using O = RouterTrainingOptions;
  return Fields<O>("router training")
      .add("top_k", &O::top_k, Range{1, static_cast<double>(model::kMostRouterTokens)}, Unit{"tokens"},
           "Most likely tokens of the drafter that the router reads: their probabilities and embeddings.")
      .add("hidden", &O::hidden, Range{1, static_cast<double>(model::kMostRouterHidden)}, "Width of the hidden layer.")
      .add("epochs", &O::epochs, Range{1, 10000}, Unit{"epochs"}, "Most passes over the training positions.")
      .add("patience", &O::patience, Range{1, 10000}, Unit{"epochs"},
           "Training ends after so many epochs without a better cross entropy on held out sources.")
      .add("batch_size", &O::batch_size, Range{1, 1 << 20}, Unit{"positions"}, "Positions of a step.")
      .add("lr", &O::lr, Above{0}, Range{0, 10}, "Learning rate of AdamW; falls linearly to 0 over all epochs.")
      .add("weight_decay", &O::weight_decay, Range{0, 100}, "Decoupled weight decay.")
      .add("validation_share", &O::validation_share, Above{0}, Range{0, 0.9},
           "Share of the sources that is held out for early stopping: the epoch is chosen on their positions.")
      .add(
          "test_share", &O::test_share, Range{0, 0.9},
          "Share of the sources that is held out for the report alone; 0: the report is about the positions that chose "
          "the epoch, and a little too good.")
      .add("seed", &O::seed, "Seed of initial weights, batches and the held out shares.")
      .add("threshold", &O::threshold, Range{0, 2},
           "Default of the router: drafting ends when the predicted acceptance falls below.")
      .add("max_draft", &O::max_draft, Range{1, static_cast<double>(model::kMostRouterDraft)}, Unit{"tokens"},
           "Default of the router: most tokens of a draft.")
      .check([](const O& options, const std::string& where, Problems& problems) {
        if (options.validation_share + options.test_share < 1) return;
        problems.add({.where = where + ".test_share",
                      .what = "validation_share and test_share leave no source to train on",
                      .expected = "a sum below 1",
                      .found = fmt::format("{:g} and {:g}", options.validation_share, options.test_share)});
      });
}

TrainedRouter train_router(const data::RouterData& data, const RoutedDrafter& drafter,
                           const RouterTrainingOptions& options, const OnRouterEpoch& on_epoch) {
  check_data(data, drafter, options);
  const RouterSplit positions = split_by_source(data, options);
  return RouterTrainer(positions, drafter, options).run(on_epoch);
}

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

namespace {

// Returns a number of a report as text; null is a dash.
std::string shown(const nlohmann::json& value) {
  return value.is_null() ? "-" : fmt::format("{:.4f}", value.get<double>());
}

}  // namespace

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
