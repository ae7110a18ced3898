// Training options as recipes write them; periods with units, and schedules against values computed by hand.
#include <cmath>

#include <gtest/gtest.h>

#include "base/toml.h"
#include "tests/support/errors.h"
#include "tests/train/fixtures.h"
#include "train/schedule.h"

namespace draftsmith::train {
namespace {

Progressed at_step(double step) {
  return {.steps = step, .epochs = step / 100, .labels = step * 50};
}

constexpr PeriodScale kScale{.steps_per_epoch = 100, .labels_per_epoch = 5000};

TEST(Period, ReadsNumbersWithTheirUnits) {
  EXPECT_EQ(std::get<Steps>(parse_period("2_000 steps", "x")).count, 2000);
  EXPECT_EQ(std::get<Epochs>(parse_period("1.5 epochs", "x")).count, 1.5);
  EXPECT_EQ(std::get<Labels>(parse_period("1e6 labels", "x")).count, 1e6);
  EXPECT_EQ(std::get<Share>(parse_period("5 %", "x")).part, 0.05);
  EXPECT_EQ(std::get<Epochs>(parse_period("1 epoch", "x")).count, 1);
}

TEST(Period, RejectsWhatHasNoUnitOrNoLength) {
  for (const char* text : {"100", "steps", "0 steps", "-3 epochs", "nan steps", "inf steps", "3 days", "120 %", ""}) {
    const std::string message = error_of([&] { parse_period(text, "train.length"); });
    EXPECT_NE(message.find("train.length"), std::string::npos) << text << ": " << message;
  }
}

TEST(Period, UnitsOfARunAgree) {
  const Period run = Epochs{4};
  EXPECT_DOUBLE_EQ(in_steps(Share{0.25}, run, kScale), 100);
  EXPECT_DOUBLE_EQ(in_steps(Labels{10000}, run, kScale), 200);
  EXPECT_DOUBLE_EQ(done(Share{0.5}, at_step(100), run), 0.5);
  EXPECT_DOUBLE_EQ(done(run, at_step(100), run), 0.25);
}

// "10 %" of ten steps is every step: 0.3 / 0.1 is a little less than 3.
TEST(Period, SharesOfARunEndAtTheirSteps) {
  for (const int64_t step : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
    EXPECT_EQ(times_done(parse_period("10 %", "every"), {.steps = static_cast<double>(step)}, Steps{10}), step);
  }
  EXPECT_EQ(times_done(Steps{3}, {.steps = 2.999}, Steps{10}), 0);
}

double factor(const ScheduleOptions& options, double step) {
  return Schedule(options, Epochs{2}, kScale).factor(at_step(step - 1), at_step(step));
}

TEST(Schedule, WarmupRisesLinearlyInEveryUnit) {
  for (const char* warmup : {"20 steps", "0.2 epochs", "1000 labels", "10 %"}) {
    const ScheduleOptions options{.name = "constant", .warmup = warmup};
    EXPECT_NEAR(factor(options, 1), 0.05, 1e-12) << warmup;
    EXPECT_NEAR(factor(options, 10), 0.5, 1e-12) << warmup;
    EXPECT_NEAR(factor(options, 20), 1, 1e-12) << warmup;
    EXPECT_NEAR(factor(options, 150), 1, 1e-12) << warmup;
  }
}

TEST(Schedule, LinearFallsToZero) {
  const ScheduleOptions options{.name = "linear", .warmup = "20 steps"};
  EXPECT_NEAR(factor(options, 20), 1, 1e-12);
  EXPECT_NEAR(factor(options, 111), 0.5, 1e-12);
  EXPECT_NEAR(factor(options, 201), 0, 1e-12);
  EXPECT_NEAR(factor(options, 300), 0, 1e-12);
}

TEST(Schedule, CosineFallsAlongHalfAWave) {
  const ScheduleOptions options{.name = "cosine", .warmup = ""};
  EXPECT_NEAR(factor(options, 51), (1 + std::cos(M_PI / 4)) / 2, 1e-12);
  EXPECT_NEAR(factor(options, 101), 0.5, 1e-12);
  EXPECT_NEAR(factor(options, 201), 0, 1e-12);
}

// With a factor of 0 at the end, the last of N steps would otherwise compute a gradient and move nothing.
TEST(Schedule, TheLastStepHasARate) {
  for (const char* warmup : {"", "20 steps"}) {
    const double decaying = warmup[0] == 0 ? 200 : 180;
    EXPECT_NEAR(factor({.name = "linear", .warmup = warmup}, 200), 1 / decaying, 1e-12);
    EXPECT_GT(factor({.name = "cosine", .warmup = warmup}, 200), 0);
    EXPECT_NEAR(factor({.name = "linear", .warmup = warmup}, warmup[0] == 0 ? 1 : 21), 1, 1e-12);
  }
}

TEST(Schedule, InverseSquareRootCountsInWarmups) {
  const ScheduleOptions options{.name = "inverse_sqrt", .warmup = "20 steps"};
  EXPECT_NEAR(factor(options, 10), 0.5, 1e-12);
  EXPECT_NEAR(factor(options, 80), 0.5, 1e-12);
  EXPECT_NEAR(factor(options, 180), 1.0 / 3, 1e-12);
}

TEST(Schedule, ImpossibleOnesAreErrors) {
  EXPECT_NE(error_of([] { factor({.name = "inverse_sqrt", .warmup = ""}, 1); }), "no error");
  EXPECT_NE(error_of([] { factor({.name = "linear", .warmup = "3 epochs"}, 1); }), "no error");
  EXPECT_NE(error_of([] { factor({.name = "triangle", .warmup = ""}, 1); }), "no error");
}

TEST(TrainOptions, EveryMistakeIsReportedAtOnce) {
  const auto table = parse_toml(R"(
      length = "10 %"
      optimizer.name = "adam"
      schedule.name = "inverse_sqrt"
      validation.every = "5 minutes"
      accumulate = 0
    )",
                                "recipe.toml");
  Problems problems;
  parse_options<TrainOptions>(table, "train", problems);
  const std::string message = text_of(problems.list());
  for (const char* part : {"length", "adamw", "warm-up", "5 minutes", "accumulate"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
  }
}

TEST(TrainOptions, OptionsOfAPartThatIsNotChosenAreErrors) {
  const auto table = parse_toml("objective.distill.lambda = 0.5\noptimizer.adafactor.scale_parameter = true", "recipe");
  Problems problems;
  parse_options<TrainOptions>(table, "train", problems);
  const std::string message = text_of(problems.list());
  for (const char* part : {"train.objective.distill", "name = \"cross_entropy\"", "train.optimizer.adafactor"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
  }
}

TEST(TrainOptions, CheckpointsAreDueByMinutesOrAPeriod) {
  const auto problem_of = [](const char* every) { return option_problems(TrainOptions{.checkpoint_every = every}); };
  for (const char* every : {"5 minutes", "0.5 minute", "100 steps", "1 epochs", ""}) EXPECT_EQ(problem_of(every), "");
  for (const char* every : {"sometimes", "0 minutes"})
    EXPECT_NE(problem_of(every).find("checkpoint"), std::string::npos);
}

TEST(TrainOptions, WhatOnlyLogsDoesNotChangeTheRunsIdentity) {
  TrainOptions options;
  const std::string hash = options_hash(options);
  options.log_every = 7;
  options.checkpoint_every = "5 steps";
  EXPECT_EQ(options_hash(options), hash);
  options.optimizer.lr = 5;
  EXPECT_NE(options_hash(options), hash);
}

}  // namespace
}  // namespace draftsmith::train
