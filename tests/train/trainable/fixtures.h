// What the tests of trainable models share: Tandems, exits and heads of tiny models, corpora for both kinds of them,
// runs; and what holds of every trainable: right gradients, and runs that resume with the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "base/random_tensors.h"
#include "base/signals.h"
#include "model/files/checkpoint.h"
#include "model/models/exits.h"
#include "model/models/tandem.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/models.h"
#include "tests/train/fixtures.h"
#include "train/objectives/objective.h"
#include "train/trainable/exit_trainables.h"
#include "train/trainable/tandem_trainables.h"
#include "train/training_step.h"

namespace draftsmith::train {

// Compares each parameter's gradient with the change of the loss along a random direction. fp64.
inline void expect_right_gradients(TrainableModel& trainable, const Batch& batch) {
  const auto objective = make_objective({.cross_entropy = {.label_smoothing = 0.1}});
  const model::DropoutContext dropout{.probability = 0.1, .seed = 4, .step = 2};
  require_gradients(trainable, true);
  objective->loss(trainable, batch, dropout).sum.backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (const auto& [name, parameter] : trainable.parameters()) {
    at::Tensor value = parameter;
    const at::Tensor direction = normal_tensor(value.sizes().vec(), 1, 9, name, at::kDouble);
    const auto loss_at = [&](double distance) {
      value.add_(direction, distance);
      const double loss = objective->loss(trainable, batch, dropout).sum.item<double>();
      value.sub_(direction, distance);
      return loss;
    };
    const double numeric = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    const at::Tensor gradient = value.grad();
    const double ours = gradient.defined() ? (gradient * direction).sum().item<double>() : 0;
    EXPECT_NEAR(ours, numeric, 1e-5 * std::max(1.0, std::abs(numeric))) << name;
  }
}

// Trains something anew, from weights of this seed, in FOLDER/<run>.
using TrainFrom = std::function<void(uint64_t seed, const std::string& run)>;

// A run that was stopped twice, and went on each time from a start whose weights the checkpoint must replace, ends
// with the same bits as one that never was. `files` of the result and of the last checkpoint.
inline void expect_exact_resume(const std::filesystem::path& folder, const TrainFrom& run,
                                const std::vector<std::string>& files,
                                const std::vector<std::string>& in_checkpoint = {}) {
  run(3, "whole");
  for (int stops = 0; stops < 2; ++stops) {
    const SignalWatch watch;
    raise(SIGTERM);
    EXPECT_THROW(run(3, "stopped"), Interrupted);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "stopped/model"));
  run(8, "stopped");
  const auto expect_same = [&](const std::string& file) {
    EXPECT_TRUE(read_file(folder / "whole" / file) == read_file(folder / "stopped" / file)) << file;
  };
  for (const std::string& file : files) expect_same("model/" + file);
  for (const std::string& file : in_checkpoint.empty() ? files : in_checkpoint) {
    expect_same("checkpoints/last/model/" + file);
  }
  expect_same("checkpoints/last/optimizer.safetensors");
}

// Compares a step's sums with products in bf16 with those in fp32.
inline void expect_bf16_near_fp32(const std::function<StepResult(bool bf16)>& step) {
  const StepResult exact = step(false), rounded = step(true);
  EXPECT_EQ(rounded.labels, exact.labels);
  EXPECT_NEAR(rounded.gradient_norm, exact.gradient_norm, 0.03 * exact.gradient_norm);
  EXPECT_NEAR(rounded.loss_sum, exact.loss_sum, 0.03 * exact.loss_sum);
}

using Weights = std::map<std::string, at::Tensor>;

inline model::TransformerConfig with_test_vocabulary(model::TransformerConfig config) {
  config.vocabulary = kTestVocabulary;
  config.dropout = 0.1;
  config.tied_head = config.family != "t5";
  config.output_scale = 1;  // as an untied T5 has
  return config;
}

// A primary and a smaller secondary of its family.
struct Pair {
  explicit Pair(const model::TransformerConfig& config, at::ScalarType type = at::kFloat, uint64_t seed = 3)
      : primary(model::varied_model(with_test_vocabulary(config), seed, type)),
        secondary(model::small_secondary(*primary, seed + 1, type)) {}
  TandemTrainable trainable(TandemConfiguration configuration) const {
    return {*secondary, *primary, {.configuration = configuration}};
  }

  std::unique_ptr<model::TransformerModel> primary, secondary;
};

inline Weights copy_of(const model::TransformerModel& model) {
  Weights copies;
  for (const auto& [name, value] : model.parameters()) copies[name] = value.detach().clone();
  return copies;
}

inline int64_t changed(const Weights& before, const model::TransformerModel& model) {
  int64_t count = 0;
  for (const auto& [name, value] : before) count += model.parameters().at(name).equal(value) ? 0 : 1;
  return count;
}

// Prompts of 1 to 4 tokens, continued by themselves.
inline void write_copy_corpus(const std::filesystem::path& file, int64_t examples, uint64_t seed) {
  data::CorpusWriter writer(
      file, {.tokenizer_hash = "none", .vocabulary = kTestVocabulary, .provenance = {{"prompts", "true"}}});
  RandomSequence random{CounterRandom(seed, "copy corpus")};
  for (int64_t i = 0; i < examples; ++i) {
    std::vector<int32_t> prompt, target;
    const uint64_t length = 1 + random.below(4);
    for (uint64_t t = 0; t < length; ++t) prompt.push_back(static_cast<int32_t>(3 + random.below(8)));
    target = prompt;
    target.push_back(1);
    writer.add(prompt, target);
  }
  writer.finish();
}

class TandemTraining : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 300, 1);
    write_reversal_corpus(folder_ / "validation.h5", 40, 2);
    write_copy_corpus(folder_ / "copy.h5", 300, 1);
  }

  TrainOptions options() const {
    TrainOptions options = tiny_options();
    options.length = "6 steps";
    return options;
  }

  data::Corpus corpus_for(const model::TransformerConfig& config) const {
    return data::Corpus(folder_ / (config.encoder_decoder ? "train.h5" : "copy.h5"));
  }

  TrainOptions resumed_options() const {
    TrainOptions training = options();
    training.length = "8 steps";
    training.checkpoint_every = "";
    return training;
  }

  // The primary's directory, which results of a frozen one refer to.
  std::filesystem::path saved_primary(const Pair& pair) const {
    auto directory = folder_ / "primary";
    if (!std::filesystem::exists(directory)) model::save_model(directory, *pair.primary);
    return directory;
  }

  TrainResult train(TrainableModel& trainable, const TrainOptions& training, const std::string& run) const {
    const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
    return run_training({.trainable = trainable, .corpus = corpus, .validation = {.corpus = &validation}}, training,
                        folder_ / run);
  }

  TrainResult train(Pair& pair, TandemTrainableOptions tandem, const TrainOptions& training,
                    const std::string& run) const {
    if (tandem.configuration == TandemConfiguration::kPrimaryFrozen) tandem.primary_directory = saved_primary(pair);
    TandemTrainable trainable(*pair.secondary, *pair.primary, tandem);
    return train(trainable, training, run);
  }

  TemporaryDirectory folder_;
};

inline nlohmann::json summary_of(const TrainResult& result) {
  return load_json(result.model.parent_path() / "validation.json");
}

// Three decoder layers: an encoder-decoder whose head is tied and scaled, one whose head is its own, a decoder-only
// model with RMS norms, and one with layer norms.
inline std::vector<model::TransformerConfig> exit_configs() {
  model::TransformerConfig tied = with_test_vocabulary(model::tiny_t5());
  tied.tied_head = true;
  tied.output_scale = 1 / std::sqrt(static_cast<double>(tied.width));  // as T5 has where its head is tied
  std::vector<model::TransformerConfig> configs = {tied};
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3), model::tiny_gpt2()}) {
    configs.push_back(with_test_vocabulary(config));
  }
  return configs;
}

// Numbers of their own everywhere: additions that begin as zero would hide what they do.
inline void vary(const model::Exits& exits, uint64_t seed) {
  for (const auto& [name, value] : exits.parameters()) {
    at::Tensor changed = value;
    changed.add_(normal_tensor(value.sizes().vec(), 0.2, seed, "varied/" + name, value.scalar_type()));
  }
}

// A model and exits, of which `losses` says how they are trained.
struct ExitPair {
  ExitPair(const model::TransformerConfig& config, const ExitTrainingOptions& losses, at::ScalarType type = at::kFloat,
           uint64_t seed = 3)
      : model(model::varied_model(config, seed, type)),
        exits(exit_config(losses, config.decoder_layers), *model, seed),
        trainable(*model, exits, loss_weights(losses, config.decoder_layers)) {}

  std::unique_ptr<model::TransformerModel> model;
  model::Exits exits;
  ExitTrainable trainable;
};

// A frozen model and its heads.
struct HeadPair {
  HeadPair(const model::TransformerConfig& config, const HeadOptions& options, at::ScalarType type = at::kFloat,
           uint64_t seed = 3, const std::filesystem::path& base = {})
      : model(model::varied_model(config, 3, type)),
        heads(exit_config(options), *model, seed),
        trainable(*model, heads, {base, "@target/model"}) {}

  std::unique_ptr<model::TransformerModel> model;
  model::Exits heads;
  HeadTrainable trainable;
};

inline std::vector<HeadOptions> head_forms() {
  return {{.layers = {1, 2}},
          {.layers = {1, 2}, .own_norms = true},
          {.layers = {2}, .form = "low_rank", .rank = 3},
          {.layers = {1, 2}, .form = "low_rank", .rank = 2, .own_norms = true}};
}

}  // namespace draftsmith::train
