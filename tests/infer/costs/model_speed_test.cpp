// Times of a model's parts beside the machine's rates: everything is measured, in every round, and caches are as before
// each step.
#include "infer/costs/model_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/costs/machine_rates.h"
#include "infer/costs/step_costs.h"
#include "tests/support/models.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::HasSubstr;

void expect_spread(const Spread& spread) {
  EXPECT_GT(spread.low, 0);
  EXPECT_LE(spread.low, spread.median);
  EXPECT_LE(spread.median, spread.high);
}

void expect_whole(const ModelSpeed& speed, size_t parts) {
  expect_spread(speed.memory.rate);
  expect_spread(speed.products.rate);
  EXPECT_THAT(speed.memory.description, HasSubstr("huge pages"));
  EXPECT_EQ(speed.prompt.size(), parts);
  for (const PromptSpeed& part : speed.prompt) {
    expect_spread(part.seconds);
    EXPECT_GT(part.work.operations, 0);
  }
  ASSERT_EQ(speed.steps.size(), 2u);
  EXPECT_EQ(speed.steps[1].tokens, 3);
  for (const StepSpeed& step : speed.steps) {
    expect_spread(step.seconds);
    EXPECT_GT(step.work.bytes(), 0);
  }
}

TEST(ModelSpeed, MeasuresEveryPartInEachRound) {
  SpeedQuestion question;
  question.tokens = {1, 3};
  question.rows = 2;
  question.length = 7;
  question.source = 5;
  question.rounds = 3;
  int rounds = 0;
  const auto t5 = model::tiny_model(model::tiny_t5(), at::kFloat);
  expect_whole(measure_speed(*t5, question, [&] { ++rounds; }), 2);
  EXPECT_EQ(rounds, 3 + kSpeedWarmup);
  const auto llama = model::tiny_model(model::tiny_llama(), at::kFloat);
  const ModelSpeed speed = measure_speed(*llama, question, [] {});
  expect_whole(speed, 1);
  EXPECT_EQ(speed.prompt.front().part, PromptPart::kPrompt);
}

TEST(ModelSpeed, RooflineIsTheLongerOfReadingAndComputing) {
  ModelSpeed speed;
  speed.memory.rate.median = 10;
  speed.products.rate.median = 100;
  EXPECT_DOUBLE_EQ(speed.least_seconds({.weight_bytes = 30, .cache_bytes = 10, .operations = 100}), 4);
  EXPECT_DOUBLE_EQ(speed.least_seconds({.weight_bytes = 30, .cache_bytes = 10, .operations = 500}), 5);
}

TEST(MachineRates, ArePositiveAndNameWhatWasDone) {
  const auto reading = read_rate(8 << 20);
  const auto copying = copy_rate(at::kCPU, 1 << 20);
  const auto product = product_rate(at::kCPU, at::kFloat, 64);
  for (MachineRate* rate : {reading.get(), copying.get(), product.get()}) EXPECT_GT(rate->measure(), 1e6);
  EXPECT_EQ(reading->description(), "reading 8.4 MB in huge pages");
  EXPECT_EQ(product->description(), "product of two matrices of 64 x 64 in fp32");
  EXPECT_GE(uncached_bytes(), 64 << 20);
}

TEST(TimedModel, StepsOfABatchBeginAtTheSamePlaceEachTime) {
  const auto llama = model::tiny_model(model::tiny_llama(), at::kFloat);
  TimedModel timed(*llama, random_context(llama->info(), {.rows = 3, .length = 9}), 4);
  const auto logits_of = [&](int64_t tokens) {
    timed.go_back();
    EXPECT_GT(timed.run(tokens), 0);
    return timed.output().logits.clone();
  };
  const at::Tensor first = logits_of(4);
  EXPECT_EQ(first.sizes(), (std::vector<int64_t>{3, 4, 31}));
  EXPECT_TRUE(first[0].equal(first[2]));
  logits_of(1);
  EXPECT_TRUE(logits_of(4).equal(first));
  timed.go_back();
  EXPECT_GT(timed.run(4, model::Logits::kNone), 0);
  EXPECT_FALSE(timed.output().logits.defined());
}

TEST(RandomContext, IsTheSameEachTimeAndLeavesOutControlIds) {
  model::ModelInfo info;
  info.vocabulary = 20;
  const CalibrationContext context = random_context(info, {.rows = 2, .source = 50, .length = 60});
  EXPECT_EQ(context.rows, 2);
  EXPECT_EQ(context.source.size(), 50u);
  EXPECT_EQ(context.prefix.size(), 60u);
  EXPECT_EQ(random_context(info, {.rows = 2, .source = 50, .length = 60}).source, context.source);
  EXPECT_THAT(context.source, ::testing::Each(::testing::AllOf(::testing::Ge(3), ::testing::Lt(20))));
  info.encoder_decoder = false;
  EXPECT_TRUE(random_context(info, {}).source.empty());
}

}  // namespace
}  // namespace draftsmith::infer::testing
