// Jobs of 1, 2, 3 and 4 processes train to the same weights and losses, to 1e-12 in fp64, whatever they train.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "model/kinds/block_prediction.h"
#include "model/kinds/shared_encoder.h"
#include "tests/support/captured_log.h"
#include "tests/support/models.h"
#include "tests/train/trainable/exit_training_fixtures.h"
#include "tests/train/worlds_fixtures.h"
#include "train/teacher/cached_teacher.h"
#include "train/trainable/block_trainables.h"
#include "train/trainable/shared_encoder_trainable.h"

namespace draftsmith::train {
namespace {

class TrainingInWorlds : public WorldRuns {
 protected:
  TrainOptions distilling() const {
    TrainOptions options = world_options();
    options.objective.name = "distill";
    options.objective.distill.lambda = 0.4;
    return options;
  }

  TrainOptions packing() const {
    TrainOptions options = world_options();
    options.batches.pack_tokens = 16;
    options.batches.bucket_window = 1;  // so that no row ends before its batch
    return options;
  }

  void expect_equal_tandems(TandemConfiguration configuration) const {
    const bool frozen = configuration == TandemConfiguration::kPrimaryFrozen;
    const std::filesystem::path directory = frozen ? folder_ / "primary" : std::filesystem::path();
    if (frozen) model::save_model(directory, *Pair(model::tiny_t5(), at::kDouble).primary);
    expect_equal_training(world_options(), [&](const Process& process) {
      const Pair pair(model::tiny_t5(), at::kDouble);
      TandemTrainable trainable(*pair.secondary, *pair.primary,
                                {.configuration = configuration, .primary_directory = directory});
      process.train(trainable);
    });
  }

  // With the k likeliest ids of each position.
  void expect_equal_cached_lessons(int64_t k) const;
};

std::unique_ptr<model::TransformerModel> t5_of_seed(uint64_t seed) {
  return model::varied_model(tiny_config(), seed);
}

void train_t5(const Process& process) {
  const auto model = t5_of_seed(5);
  PlainTrainable trainable(*model);
  process.train(trainable);
}

TEST_F(TrainingInWorlds, IsEqualForAPlainT5) {
  expect_equal_training(world_options(), train_t5);
}

TEST_F(TrainingInWorlds, IsEqualForAPlainLlamaWithPacking) {
  corpus_ = "copy.h5";
  expect_equal_training(packing(), [](const Process& process) {
    const auto model = model::varied_model(with_test_vocabulary(model::tiny_llama()), 5);
    PlainTrainable trainable(*model);
    process.train(trainable);
  });
}

TEST_F(TrainingInWorlds, IsEqualWithAdafactor) {
  TrainOptions options = world_options();
  options.optimizer.name = "adafactor";
  options.optimizer.adafactor.scale_parameter = true;
  options.optimizer.adafactor.beta1 = 0.9;
  options.optimizer.weight_decay = 0.01;
  expect_equal_training(options, train_t5);
}

TEST_F(TrainingInWorlds, IsEqualForATandemWithAFrozenPrimary) {
  expect_equal_tandems(TandemConfiguration::kPrimaryFrozen);
}

TEST_F(TrainingInWorlds, IsEqualForATandemTrainedByTheSecondarysLoss) {
  expect_equal_tandems(TandemConfiguration::kBothSecondaryLoss);
}

TEST_F(TrainingInWorlds, IsEqualForATandemTrainedByBothLosses) {
  expect_equal_tandems(TandemConfiguration::kBothBothLosses);
}

TEST_F(TrainingInWorlds, IsEqualForExits) {
  const ExitTrainingOptions losses{.loss = "weighted", .layers = {1, 2}, .weights = {0.3, 0.5, 1.5}, .own_norms = true};
  expect_equal_training(world_options(), [&](const Process& process) {
    ExitPair pair(exit_configs().front(), losses, at::kDouble);
    process.train(pair.trainable);
  });
}

TEST_F(TrainingInWorlds, IsEqualForHeadsOfAFrozenModel) {
  TrainOptions options = world_options();
  options.dropout.reset();
  options.objective.name = "distill";
  const auto config = exit_configs().front();
  model::save_model(folder_ / "base", *model::varied_model(config, 3));
  expect_equal_training(options, [&](const Process& process) {
    HeadPair pair(config, {.layers = {1, 2}, .own_norms = true}, at::kDouble, 3, folder_ / "base");
    process.train(pair.trainable);
  });
}

TEST_F(TrainingInWorlds, IsEqualForADrafterThatSharesItsTargetsEncoder) {
  const auto config = with_test_vocabulary(model::tiny_t5());
  model::save_model(folder_ / "target", *model::varied_model(config, 3));
  expect_equal_training(distilling(), [&](const Process& process) {
    const auto target = model::varied_model(config, 3);
    const auto drafter =
        model::make_shared_encoder_drafter(*model::varied_model(model::smaller(config), 4), *target, {.seed = 3});
    SharedEncoderTrainable trainable(*drafter, *target, {.target_directory = folder_ / "target", .teaches = true});
    process.train(trainable);
  });
}

TEST_F(TrainingInWorlds, IsEqualForBlockPrediction) {
  corpus_ = "copy.h5";
  expect_equal_training(packing(), [](const Process& process) {
    const auto config = model::block_prediction_config(with_test_vocabulary(model::tiny_llama()), 2);
    const auto model = model::varied_model(config, 5);
    BlockPredictionTrainable trainable(*model);
    process.train(trainable);
  });
}

void learn_from_a_live_teacher(const Process& process) {
  const auto student = t5_of_seed(5), teacher = t5_of_seed(6);
  LiveTeacher source(*teacher);
  PlainTrainable trainable(*student);
  process.train(trainable, &source);
}

TEST_F(TrainingInWorlds, IsEqualForALessonOfALiveTeacher) {
  expect_equal_training(distilling(), learn_from_a_live_teacher);
}

TEST_F(TrainingInWorlds, IsEqualForALessonBySequences) {
  TrainOptions options = distilling();
  options.objective.distill.normalization = "sequences";
  expect_equal_training(options, learn_from_a_live_teacher);
}

// Writes a cache of a teacher's k likeliest ids.
data::TeacherCache write_cache(const std::filesystem::path& file, const data::Corpus& corpus, int64_t k) {
  const at::NoGradGuard no_grad;
  const auto teacher = t5_of_seed(6);
  const StoredRows rows = TeacherLogits(*teacher, corpus, {.k = k}, 64).rows(0, corpus.size(), [](int64_t) {});
  data::TeacherCacheWriter writer(file, {.k = k,
                                         .vocabulary = kTestVocabulary,
                                         .positions = corpus.info().target_tokens,
                                         .tokenizer_hash = "none",
                                         .corpus_hash = data::corpus_hash(corpus)});
  for (const data::TeacherRows& example : by_example(rows, corpus, 0, corpus.size())) writer.add(example);
  writer.finish();
  return data::TeacherCache(file);
}

void TrainingInWorlds::expect_equal_cached_lessons(int64_t k) const {
  const data::TeacherCache cache = write_cache(folder_ / "cache.h5", data::Corpus(folder_ / "train.h5"), k);
  expect_equal_training(distilling(), [&](const Process& process) {
    const auto student = t5_of_seed(5);
    CachedTeacher source(cache);
    PlainTrainable trainable(*student);
    process.train(trainable, &source);
  });
}

TEST_F(TrainingInWorlds, IsEqualForALessonOfStoredDistributions) {
  expect_equal_cached_lessons(kTestVocabulary);
}

TEST_F(TrainingInWorlds, IsEqualForALessonOfTheLikeliestStoredIds) {
  expect_equal_cached_lessons(4);
}

TEST_F(TrainingInWorlds, IsEqualForALessonOnTheStudentsOwnSamples) {
  TrainOptions options = distilling();
  options.objective.distill.on_policy = {.share = 0.5, .max_new_tokens = 9};
  expect_equal_training(options, learn_from_a_live_teacher);
}

// A model with a parameter that one micro-batch of an epoch reads, in its second step.
class SeldomRead : public PlainTrainable {
 public:
  explicit SeldomRead(model::TransformerModel& model) : PlainTrainable(model), all_(model.parameters()) {
    all_["seldom"] = at::full({model.config().width}, 0.1, at::kDouble);
  }
  const std::map<std::string, at::Tensor>& parameters() const override { return all_; }
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    TrainableOutput output = PlainTrainable::forward(batch, dropout);
    at::Tensor& hidden = output.predictions.front().hidden;
    if (dropout.step % 13 == 7) hidden = hidden + all_.at("seldom");
    return output;
  }

 private:
  std::map<std::string, at::Tensor> all_;
};

TEST_F(TrainingInWorlds, IsEqualWhereMostMicroBatchesLeaveAParameterWithoutGradient) {
  expect_equal_training(world_options(), [](const Process& process) {
    const auto model = t5_of_seed(5);
    SeldomRead trainable(*model);
    process.train(trainable);
    EXPECT_GT(difference(process.ended.weights.at("seldom"), at::full({}, 0.1, at::kDouble)), 1e-3);
  });
}

TEST_F(TrainingInWorlds, WarnsOnceOfProcessesThatHaveNothingToDo) {
  TrainOptions options = world_options();
  options.accumulate = 2;
  const CapturedLog log;
  expect_equal_worlds(options, train_t5);
  EXPECT_EQ(log.warnings(), 2) << log.text();  // in the worlds of 3 and 4
  EXPECT_NE(log.text().find("3 processes share 2 micro-batches a step, so 1 do nothing"), std::string::npos);
  EXPECT_NE(log.text().find("4 processes share 2 micro-batches a step, so 2 do nothing"), std::string::npos);
}

}  // namespace
}  // namespace draftsmith::train
