// One step of a drafter before and after its vocabulary is pruned: time and bytes read, side by side in turns.
//
//   build/release/bench/bench_pruned_vocabulary [--threads N] [--rounds N]
//
// Shape of mT5-small (vocabulary 250,112, d 512, feed-forward 1024 gated, 6 heads x 64, 8+8 layers, untied head),
// random weights, fp32, batch 1, 32 source tokens, 16 tokens decoded before. A step takes one token and ends with the
// most likely next one of all ids, as greedy drafting does. Ratios are of neighbours in time: median and the 10th to
// 90th percentile.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "base/timing.h"
#include "model/pruning/pruning.h"
#include "tests/support/models.h"

namespace {

using namespace draftsmith::model;

constexpr int64_t kVocabulary = 250112;
constexpr int64_t kPrefix = 16;

TransformerConfig mt5_small() {
  TransformerConfig config = draftsmith::model::t5_config({.vocabulary = kVocabulary,
                                                           .width = 512,
                                                           .heads = 6,
                                                           .head_width = 64,
                                                           .ff_width = 1024,
                                                           .encoder_layers = 8,
                                                           .decoder_layers = 8});
  config.family = "mt5";
  config.activation = Activation::kGeluTanh;
  config.gated = true;
  return config;
}

// Of the weights: all of the decoder's but the projections of encoder states, which are made once, the head, and a row
// of the embedding. Caches are small beside them.
double megabytes_per_step(const TransformerModel& model) {
  int64_t numbers = model.config().width;
  for (const auto& [name, tensor] : model.parameters()) {
    const bool once = name.find("cross_attention.key") != std::string::npos ||
                      name.find("cross_attention.value") != std::string::npos;
    if ((name.starts_with("decoder.") && !once) || name == "head.weight") numbers += tensor.numel();
  }
  return static_cast<double>(numbers) * sizeof(float) / 1e6;
}

// A model that has decoded some tokens and steps from there again and again.
class Stepper {
 public:
  explicit Stepper(std::unique_ptr<TransformerModel> model)
      : model_(std::move(model)), megabytes_(megabytes_per_step(*model_)) {
    model_->pack();
    state_ = model_->begin(model_->encode({at::full({1, 32}, 11, at::kLong), {32}}), 2 * kPrefix);
    model_->step({at::full({1, kPrefix}, 17, at::kLong), {kPrefix}, Logits::kNone, {}}, *state_);
    input_ = {at::full({1, 1}, 17, at::kLong), {1}, Logits::kLast, {}};
  }

  double milliseconds() {
    state_->rollback(std::vector<int64_t>{kPrefix});
    const draftsmith::Stopwatch watch;
    model_->step(input_, *state_).logits.argmax(-1).item<int64_t>();
    return 1e3 * watch.seconds();
  }

  int64_t rows() const { return model_->config().vocabulary_rows(); }
  double megabytes() const { return megabytes_; }

 private:
  std::unique_ptr<TransformerModel> model_;
  double megabytes_;
  std::unique_ptr<DecodeState> state_;
  StepInput input_;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

void measure(int64_t rounds) {
  const at::NoGradGuard no_grad;
  auto whole = std::make_unique<TransformerModel>(mt5_small(), 1);
  std::vector<int64_t> counts(kVocabulary);
  std::iota(counts.rbegin(), counts.rend(), int64_t{0});
  for (size_t id = 0; id < counts.size(); id += 3) counts[id] = 0;  // gaps, as real vocabularies leave
  std::vector<std::unique_ptr<TransformerModel>> small;
  for (const int64_t rows : {32768, 16384}) {
    small.push_back(
        prune(*whole, {.vocabulary_from = "counts", .vocabulary_size = rows}, {.token_counts = counts, .unknown = 2}));
  }
  std::vector<Stepper> steppers;
  steppers.emplace_back(std::move(whole));
  for (auto& model : small) steppers.emplace_back(std::move(model));
  std::vector<std::vector<double>> times(steppers.size());
  for (int64_t round = -3; round < rounds; ++round) {
    for (size_t i = 0; i < steppers.size(); ++i) {
      const double milliseconds = steppers[i].milliseconds();
      if (round >= 0) times[i].push_back(milliseconds);
    }
  }
  std::printf("%d threads, %ld rounds\n", at::get_num_threads(), rounds);
  std::printf("%9s  %12s  %9s  %s\n", "ids", "MB per step", "ms", "faster than the whole");
  for (size_t i = 0; i < steppers.size(); ++i) {
    std::vector<double> ratios;
    for (size_t round = 0; round < times[i].size(); ++round) ratios.push_back(times[0][round] / times[i][round]);
    std::printf("%9ld  %12.1f  %9.3f  %.2f (%.2f to %.2f); bytes %.2f\n", steppers[i].rows(), steppers[i].megabytes(),
                percentile(times[i], 0.5), percentile(ratios, 0.5), percentile(ratios, 0.1), percentile(ratios, 0.9),
                steppers[0].megabytes() / steppers[i].megabytes());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rounds = 60;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      at::set_num_threads(std::stoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
      rounds = std::max(1, std::stoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: bench_pruned_vocabulary [--threads N] [--rounds N]\n");
      return 2;
    }
  }
  measure(rounds);
  return 0;
}
