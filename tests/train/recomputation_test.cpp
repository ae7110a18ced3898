// Activation checkpointing: the gradients are those of a pass that keeps everything.
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/trainable/exit_training_fixtures.h"
#include "tests/train/trainable/tandem_training_fixtures.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

class Recomputation : public testing::Test {
 protected:
  void SetUp() override { write_copy_corpus(folder_ / "corpus.h5", 8, 3); }

  // Gradients of a step of two micro-batches.
  Weights gradients(TrainableModel& trainable, const StepSettings& settings) const {
    const data::Corpus corpus(folder_ / "corpus.h5");
    const auto objective = make_objective({});
    require_gradients(trainable, true);
    for (const auto& [name, value] : trainable.parameters()) value.mutable_grad().reset();
    accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, settings);
    Weights found;
    for (const auto& [name, value] : trainable.parameters()) {
      if (value.grad().defined()) found[name] = value.grad().clone();
    }
    return found;
  }

  // Names of gradients that differ by more than `tolerance` if layers are recomputed.
  std::string changes(TrainableModel& trainable, StepSettings settings, double tolerance = 0) const {
    const Weights kept = gradients(trainable, settings);
    settings.recompute = true;
    const Weights again = gradients(trainable, settings);
    if (kept.size() != again.size() || kept.empty()) return "another number of gradients";
    return differences(again, kept, tolerance);
  }

  TemporaryDirectory folder_;
};

TEST_F(Recomputation, GivesTheSameBits) {
  for (model::TransformerConfig config : model::tiny_families()) {
    config.vocabulary = kTestVocabulary;
    const auto model = model::varied_model(config, 3, at::kFloat);
    PlainTrainable trainable(*model);
    for (const double dropout : {0.0, 0.1}) {
      for (const bool autocast : {false, true}) {
        SCOPED_TRACE(config.family + " " + std::to_string(dropout) + " " + std::to_string(autocast));
        EXPECT_EQ(changes(trainable, {.dropout = dropout, .seed = 7, .autocast = autocast}), "");
      }
    }
  }
}

TEST_F(Recomputation, GivesTheSameBitsInPackedRows) {
  const auto model = model::varied_model(with_test_vocabulary(model::tiny_llama(3)), 3, at::kFloat);
  PlainTrainable trainable(*model);
  EXPECT_EQ(changes(trainable, {.dropout = 0.1, .pack_tokens = 24}), "");
}

TEST_F(Recomputation, AFrozenEmbeddingLeavesTheLayersTheirGradients) {
  const auto model = model::varied_model(with_test_vocabulary(model::tiny_llama(3)), 3, at::kFloat);
  std::map<std::string, at::Tensor> layers = model->parameters();
  model->requires_grad(true);
  const data::Corpus corpus(folder_ / "corpus.h5");
  const auto objective = make_objective({});
  PlainTrainable trainable(*model);
  layers.at("embedding.weight").requires_grad_(false);
  accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}}, {.recompute = true});
  EXPECT_TRUE(layers.at("decoder.0.self_attention.query.weight").grad().defined());
}

TEST_F(Recomputation, GivesTheSameBitsForASecondaryOfAFrozenPrimary) {
  for (const auto& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    SCOPED_TRACE(config.family);
    const Pair pair(config);
    TandemTrainable trainable = pair.trainable(TandemConfiguration::kPrimaryFrozen);
    EXPECT_EQ(changes(trainable, {.dropout = 0.1}), "");
  }
}

// Layers whose outputs something else reads too add up their gradients in another order.
TEST_F(Recomputation, GivesTheSameGradientsWhereHiddenStatesAreShared) {
  const Pair pair(model::tiny_t5());
  TandemTrainable both = pair.trainable(TandemConfiguration::kBothBothLosses);
  EXPECT_EQ(changes(both, {.dropout = 0.1}, 1e-5), "");
  ExitPair exits(exit_configs()[0], {.loss = "calm_weighted"}, at::kFloat);
  EXPECT_EQ(changes(exits.trainable, {.dropout = 0.1}, 1e-5), "");
}

}  // namespace
}  // namespace draftsmith::train
