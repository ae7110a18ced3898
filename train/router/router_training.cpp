#include "train/router/router_training.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/random.h"
#include "train/optimizers/optimizer.h"
#include "train/router/router_positions.h"

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
  if (options.context && info.context != model::kRouterContext) {
    problems.add({.where = "router data",
                  .what = "the positions hold another context than the router is to read",
                  .expected = fmt::format("{} numbers, or context = false", model::kRouterContext),
                  .found = fmt::format("{} numbers", info.context),
                  .hint = "collect them again: stage router-data"});
  }
  problems.throw_if_any();
}

class RouterTrainer {
 public:
  // Reports on `test` or, if it has no positions, on `validation`.
  RouterTrainer(const RouterPositions& training, const RouterPositions& validation, const RouterPositions& test,
                const RoutedDrafter& drafter, const RouterTrainingOptions& options)
      : training_(training),
        validation_(validation),
        test_(test),
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
    RouterReport report;
    double best = std::numeric_limits<double>::infinity();
    std::map<std::string, at::Tensor> kept;
    while (report.epochs < options_.epochs && report.epochs - report.best_epoch < options_.patience) {
      train_epoch(report.epochs++);
      const double loss = cross_entropy(predict(validation_), validation_);
      if (on_epoch) on_epoch(report.epochs, loss);
      if (!(loss < best)) continue;
      best = loss;
      report.best_epoch = report.epochs;
      for (const auto& [name, value] : router_.parameters()) kept[name] = value.detach().clone();
    }
    if (kept.empty()) {
      throw RunError({.where = "router training",
                      .what = "the cross entropy is not a number",
                      .expected = "a finite loss",
                      .found = "NaN",
                      .hint = "lower lr"});
    }
    model::Router router(router_.config(), std::move(kept), "trained router");
    router_ = router;
    judge(report);
    return {std::move(router), std::move(report)};
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
            .reads_context = options_.context,
            .threshold = options_.threshold,
            .max_draft = options_.max_draft};
  }

  // The target of the predictions, fp32 [N].
  at::Tensor targets(const RouterPositions& positions) const {
    return options_.target == "rejected" ? at::tensor(positions.rejected, at::kInt).to(at::kFloat)
                                         : positions.disagreement;
  }

  // Logits [n] of the positions `rows` int64 [n].
  at::Tensor logits(const RouterPositions& positions, const at::Tensor& rows) const {
    const model::RouterFeatures features = positions.at(rows);
    const at::Tensor embeddings = drafter_.model.token_embeddings(features.ids.clamp_min(0)).to(at::kCPU);  // [n,k,D]
    return router_.logits(features, embeddings);
  }

  void train_epoch(int64_t epoch) {
    const int64_t batches = (training_.size() + options_.batch_size - 1) / options_.batch_size;
    const at::Tensor order = shuffled(epoch);
    const at::Tensor labels = targets(training_);
    for (int64_t batch = 0; batch < batches; ++batch) {
      const int64_t first = batch * options_.batch_size;
      const at::Tensor rows = order.narrow(0, first, std::min(options_.batch_size, training_.size() - first));
      const at::Tensor loss = at::binary_cross_entropy_with_logits(
          logits(training_, rows), labels.index_select(0, rows), {}, {}, at::Reduction::Sum);
      loss.backward();
      const double left =
          1 - static_cast<double>(epoch * batches + batch) / static_cast<double>(options_.epochs * batches);
      optimizer_->step(options_.lr * left, 1.0 / static_cast<double>(rows.numel()));
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
      const int64_t count = std::min(kAtOnce, positions.size() - first);
      parts.push_back(at::sigmoid(logits(positions, at::arange(first, first + count, at::kLong))));
    }
    return at::cat(parts);
  }

  double cross_entropy(const at::Tensor& predicted, const RouterPositions& positions) const {
    return at::binary_cross_entropy(predicted.to(at::kDouble), targets(positions).to(at::kDouble)).item<double>();
  }

  void judge(RouterReport& report) const {
    const RouterPositions& judged = test_.size() > 0 ? test_ : validation_;
    const at::Tensor predicted = predict(judged).contiguous();
    const at::Tensor labels = targets(judged).to(at::kDouble);
    report.training_positions = training_.size();
    report.validation_positions = validation_.size();
    report.test_positions = test_.size();
    report.cross_entropy = cross_entropy(predicted, judged);
    report.target = options_.target;
    report.mean_disagreement = judged.disagreement.to(at::kDouble).mean().item<double>();
    report.constant_cross_entropy = cross_entropy(at::full_like(labels, labels.mean().item<double>()), judged);
    report.least_cross_entropy = cross_entropy(labels, judged);
    const std::vector<int32_t>& rejected = judged.rejected;
    report.rejected = std::accumulate(rejected.begin(), rejected.end(), 0.0) / static_cast<double>(rejected.size());
    const std::vector<float> hard(rejected.begin(), rejected.end());
    const auto numbers = [](const at::Tensor& values) {
      return std::span(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()));
    };
    const at::Tensor unsure = (1 - judged.features.probabilities.select(1, 0)).contiguous();
    const auto add = [&](const char* score, const at::Tensor& values) {
      report.auc.push_back(
          {score, weighted_auc(numbers(values), hard), weighted_auc(numbers(values), numbers(judged.disagreement))});
    };
    add("router", predicted);
    add("entropy", judged.features.entropy);
    add("max_probability", unsure);
    const auto gain = [&](std::span<const float> truth) {
      return auc_gain({numbers(predicted), numbers(unsure), truth, judged.sources}, options_.seed);
    };
    report.gain = {gain(hard), gain(numbers(judged.disagreement))};
    report.bins = reliability({numbers(predicted), numbers(judged.disagreement), rejected});
    report.calibration_error = calibration_error(
        report.bins, options_.target == "rejected" ? &ReliabilityBin::rejected : &ReliabilityBin::disagreement);
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
      .add("context", &O::context,
           "Also read what other window rules know: the token's place in draft and text, the source's length, and how "
           "many drafted tokens the target kept lately. false: the drafter's distribution alone (the paper's).")
      .add("target", &O::target, Choices{"disagreement", "rejected"},
           "What is predicted: disagreement is TV(q, p), the probability that a token sampled from q is rejected (the "
           "paper's); rejected is whether the token was, in the decoding that was collected: what acceptance means "
           "there, if that was at temperature 0.")
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
  const RouterSplit split = split_by_source(data, {options.validation_share, options.test_share}, options.seed);
  const RouterPositions training = select_positions(data, split.training, options.top_k);
  const RouterPositions validation = select_positions(data, split.validation, options.top_k);
  const RouterPositions test = select_positions(data, split.test, options.top_k);
  return RouterTrainer(training, validation, test, drafter, options).run(on_epoch);
}

}  // namespace draftsmith::train
