// What the tests of Tandem training share: a tiny pair of models, corpora for both kinds of them, runs.
#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "model/models/tandem.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/models.h"
#include "tests/train/fixtures.h"
#include "train/trainable/tandem_trainables.h"

namespace draftsmith::train {

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
    options.tensorboard = false;
    return options;
  }

  // The primary's directory, which results of a frozen one refer to.
  std::filesystem::path saved_primary(const Pair& pair) const {
    auto directory = folder_ / "primary";
    if (!std::filesystem::exists(directory)) model::save_model(directory, *pair.primary);
    return directory;
  }

  TrainResult train(Pair& pair, TandemTrainableOptions tandem, const TrainOptions& training,
                    const std::string& run) const {
    if (tandem.configuration == TandemConfiguration::kPrimaryFrozen) tandem.primary_directory = saved_primary(pair);
    TandemTrainable trainable(*pair.secondary, *pair.primary, tandem);
    const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
    return Trainer({.trainable = trainable, .corpus = corpus, .validation = &validation}, training, folder_ / run)
        .run();
  }

  TemporaryDirectory folder_;
};

inline nlohmann::json summary_of(const TrainResult& result) {
  return load_json(result.model.parent_path() / "validation.json");
}

}  // namespace draftsmith::train
