// Training of models that work in blocks: block prediction's labels, and that both kinds learn, are saved and resume
// with the same bits.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/random.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/train/trainable/fixtures.h"
#include "train/trainable/tandem_trainables.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kBlock = 3;

// Texts that repeat themselves after 3 tokens: a block says what the next one is.
void write_periodic_corpus(const std::filesystem::path& file, int64_t examples, int64_t prompt) {
  data::CorpusWriter writer(
      file, {.tokenizer_hash = "none", .vocabulary = kTestVocabulary, .provenance = {{"prompts", "true"}}});
  RandomSequence random{CounterRandom(5, "periodic corpus")};
  for (int64_t i = 0; i < examples; ++i) {
    std::vector<int32_t> period, text;
    for (int64_t t = 0; t < kBlock; ++t) period.push_back(static_cast<int32_t>(3 + random.below(6)));
    for (int64_t t = 0; t < 8 + i % 3; ++t) text.push_back(period[static_cast<size_t>(t % kBlock)]);
    writer.add(std::span<const int32_t>(text).first(static_cast<size_t>(prompt)),
               std::span<const int32_t>(text).subspan(static_cast<size_t>(prompt)));
  }
  writer.finish();
}

model::TransformerConfig tiny_decoder() {
  model::TransformerConfig config = model::tiny_llama(2);
  config.vocabulary = kTestVocabulary;
  config.decoder_start = 2;
  return config;
}

model::DeepTandemModel deep_tandem(uint64_t seed) {
  return {{.large = tiny_decoder(), .small = tiny_decoder(), .block = kBlock}, seed};
}

TrainOptions options(const std::string& length) {
  TrainOptions options = learning(length);
  options.batches.pack_tokens = 24;
  options.batches.token_budget = 96;
  return options;
}

class BlockTraining : public testing::Test {
 protected:
  void SetUp() override {
    write_periodic_corpus(folder_ / "train.h5", 120, 1);
    write_periodic_corpus(folder_ / "plain.h5", 12, 0);
  }
  TrainResult train(TrainableModel& trainable, const TrainOptions& training, const std::string& run) const {
    const data::Corpus corpus(folder_ / "train.h5");
    return run_training({.trainable = trainable, .corpus = corpus, .validation = {.corpus = &corpus}}, training,
                        folder_ / run);
  }
  TemporaryDirectory folder_;
};

// The label at position p is token p + 1: predicted by the state at token p + 1 - γ, which the first ones lack.
TEST_F(BlockTraining, BlockPredictionIsJudgedOnTheTokensThatItPredicts) {
  model::TransformerModel model(model::block_prediction_config(tiny_decoder(), kBlock), 5);
  model.to(at::kCPU, at::kDouble);
  BlockPredictionTrainable trainable(model);
  const data::Corpus corpus(folder_ / "plain.h5");
  const at::NoGradGuard no_grad;
  double expected = 0;
  int64_t labels = 0;
  std::vector<int64_t> all;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    all.push_back(i);
    const Batch batch = make_batch(corpus, {i}, model.info());
    const at::Tensor hidden = model.forward({.target = batch.decoder_input}).hidden;
    const at::Tensor log_probs = model.head(hidden)[0].log_softmax(1);  // [T,V]
    for (int64_t p = kBlock - 1; p < batch.label_count(); ++p, ++labels) {
      expected -= log_probs[p + 1 - kBlock][batch.labels[p].item<int64_t>()].item<double>();
    }
  }
  const Loss loss = make_objective({})->loss(trainable, make_batch(corpus, all, model.info(), 24), {});
  EXPECT_EQ(loss.count, labels);
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-9 * expected);
}

TEST_F(BlockTraining, ADeepTandemTrainsBothPartsAndItsCheckpointLoads) {
  model::DeepTandemModel model = deep_tandem(7);
  DeepTandemTrainable trainable(model);
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, value] : trainable.parameters()) before[name] = value.clone();
  const data::Corpus corpus(folder_ / "train.h5");
  const double loss = validate(trainable, {.corpus = &corpus}, {}).loss;
  const TrainResult result = train(trainable, options("40 steps"), "whole");
  EXPECT_LT(validate(trainable, {.corpus = &corpus}, {}).loss, loss - 1);
  for (const auto& [name, value] : trainable.parameters()) {
    EXPECT_FALSE(value.equal(before.at(name))) << name;
  }
  // From its checkpoint another start becomes the same.
  model::DeepTandemModel other = deep_tandem(8);
  DeepTandemTrainable resumed(other);
  resumed.load(folder_ / "whole" / "checkpoints" / "last" / "model");
  const auto stored = model::load_deep_tandem(result.model, {.pack = false});
  for (const auto& [name, value] : resumed.parameters()) {
    EXPECT_TRUE(value.equal(stored->parameters().at(name))) << name;
  }
}

TEST_F(BlockTraining, TextsThatAreTooLongForTheLargePartAreRefused) {
  model::TransformerConfig large = tiny_decoder();
  large.max_positions = 8;
  model::DeepTandemModel model({.large = large, .small = tiny_decoder(), .block = kBlock}, 7);
  DeepTandemTrainable trainable(model);
  EXPECT_THAT(error_of([&] { train(trainable, options("1 steps"), "run"); }), testing::HasSubstr("at most 8 tokens"));
}

TEST_F(BlockTraining, BothResumeWithTheSameBits) {
  TrainOptions training = options("8 steps");
  training.dropout = 0.1;
  training.checkpoint_every = "";
  const TemporaryDirectory deep, single;
  const data::Corpus corpus(folder_ / "train.h5");
  const auto run_in = [&](const TemporaryDirectory& folder, TrainableModel& trainable, const std::string& run) {
    run_training({.trainable = trainable, .corpus = corpus}, training, folder / run);
  };
  expect_exact_resume(deep.path(),
                      [&](uint64_t seed, const std::string& run) {
                        model::DeepTandemModel model = deep_tandem(seed);
                        DeepTandemTrainable trainable(model);
                        run_in(deep, trainable, run);
                      },
                      {"model.safetensors", "large/model.safetensors", "small/model.safetensors"});
  expect_exact_resume(single.path(),
                      [&](uint64_t seed, const std::string& run) {
                        model::TransformerModel model(model::block_prediction_config(tiny_decoder(), kBlock), seed);
                        BlockPredictionTrainable trainable(model);
                        run_in(single, trainable, run);
                      },
                      {"model.safetensors"});
}

}  // namespace
}  // namespace draftsmith::train
