#include "tests/train/fixtures.h"

#include <algorithm>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "model/pruning/pruning.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::train {

model::TransformerConfig tiny_config() {
  model::TransformerConfig config = model::t5_config({.vocabulary = kTestVocabulary, .head_width = 6, .ff_width = 24});
  config.embedding_std = 0.1;
  return config;
}

void write_reversal_corpus(const std::filesystem::path& file, int64_t examples, uint64_t seed) {
  data::CorpusInfo info{.tokenizer_hash = "none", .vocabulary = kTestVocabulary};
  data::CorpusWriter writer(file, info);
  RandomSequence random{CounterRandom(seed, "reversal corpus")};
  for (int64_t i = 0; i < examples; ++i) {
    std::vector<int32_t> source;
    const uint64_t length = 1 + random.below(8);
    for (uint64_t t = 0; t < length; ++t) source.push_back(static_cast<int32_t>(3 + random.below(kTestVocabulary - 3)));
    std::vector<int32_t> target(source.rbegin(), source.rend());
    source.push_back(1);
    target.push_back(1);
    writer.add(source, target);
  }
  writer.finish();
}

TrainOptions tiny_options() {
  TrainOptions options{.length = "2 epochs", .accumulate = 2, .dropout = 0.1};
  options.batches.token_budget = 60;
  options.batches.bucket_window = 4;
  options.optimizer.lr = 3e-3;
  options.schedule.name = "linear";
  options.schedule.warmup = "10 %";
  options.checkpoint_every = "3 steps";
  options.log_every = 2;
  return options;
}

TrainOptions learning(const std::string& length) {
  TrainOptions options = tiny_options();
  options.length = length;
  options.dropout = 0;
  options.optimizer.lr = 1e-2;
  return options;
}

TrainResult train_tiny(const std::filesystem::path& directory, const TrainOptions& options) {
  model::TransformerModel model(tiny_config(), 5);
  const data::Corpus corpus(directory.parent_path() / "train.h5");
  PlainTrainable trainable(model);
  return run_training(TrainerInputs{.trainable = trainable, .corpus = corpus}, options, directory);
}

TrainResult train_tiny_validated(const std::filesystem::path& directory, const TrainOptions& options) {
  model::TransformerModel model(tiny_config(), 5);
  const data::Corpus corpus(directory.parent_path() / "train.h5");
  const data::Corpus validation(directory.parent_path() / "validation.h5");
  PlainTrainable trainable(model);
  return run_training(TrainerInputs{.trainable = trainable, .corpus = corpus, .validation = {.corpus = &validation}},
                      options, directory);
}

std::vector<nlohmann::json> untimed_log(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : lines_of(read_file(run / "metrics.jsonl"))) {
    lines.push_back(nlohmann::json::parse(line));
    for (const char* timed : {"seconds", "tokens_per_second", "validation_seconds"}) lines.back().erase(timed);
  }
  return lines;
}

void expect_same_run(const std::filesystem::path& one, const std::filesystem::path& other) {
  for (const char* file : {"model/model.safetensors", "best/model.safetensors",
                           "checkpoints/last/model/model.safetensors", "checkpoints/last/optimizer.safetensors"}) {
    EXPECT_TRUE(read_file(one / file) == read_file(other / file)) << file << " differs";
  }
  EXPECT_EQ(untimed_log(one), untimed_log(other));
}

TrainableOutput PoisonedTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  TrainableOutput output = PlainTrainable::forward(batch, dropout);
  if (std::any_of(batch.examples.begin(), batch.examples.end(), [&](int64_t i) { return i < poisoned_; })) {
    at::Tensor& hidden = output.predictions.front().hidden;
    hidden = hidden * std::numeric_limits<double>::quiet_NaN();
  }
  return output;
}

std::unique_ptr<model::TransformerModel> pruned(const model::TransformerModel& model) {
  return model::prune(model, {.vocabulary_from = "text", .vocabulary_size = kPrunedRows},
                      {.token_counts = std::vector<int64_t>(kTestVocabulary, 1), .unknown = 2});
}

std::string differences(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b,
                        double tolerance) {
  std::string names;
  for (const auto& [name, tensor] : a) {
    const at::Tensor& other = b.at(name);
    const double change = difference(tensor, other);
    if (change > tolerance * std::max(1e-12, largest(other))) {
      names += name + " (" + std::to_string(change) + ") ";
    }
  }
  return names;
}

at::Tensor numeric_gradient(at::Tensor x, const std::function<double()>& f) {
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  at::Tensor gradient = at::zeros_like(x);
  auto* value = x.data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double before = value[i];
    value[i] = before + kStep;
    const double above = f();
    value[i] = before - kStep;
    const double below = f();
    value[i] = before;
    gradient.data_ptr<double>()[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

}  // namespace draftsmith::train
