// Training options as recipes write them.
#include <gtest/gtest.h>

#include "base/toml.h"
#include "tests/support/errors.h"
#include "tests/train/fixtures.h"

namespace draftsmith::train {
namespace {

TrainOptions parsed(const std::string& text) {
  Problems problems;
  const TrainOptions options = parse_options<TrainOptions>(parse_toml(text, "recipe.toml"), "train", problems);
  problems.throw_if_any();
  return options;
}

// The two recipes of methods.md for a T5 from random weights.
TEST(TrainOptions, ExpressBothRecipesForT5FromScratch) {
  const TrainOptions adamw = parsed(R"(
    length = "3 epochs"
    optimizer.name = "adamw"
    optimizer.lr = 1e-3
    [[optimizer.groups]]
    parameters = "*.query.weight"
    lr_factor = 0.125
    [[optimizer.groups]]
    parameters = "embedding.weight"
    lr_factor = 3.0
  )");
  ASSERT_EQ(adamw.optimizer.groups.size(), 2u);
  EXPECT_EQ(adamw.optimizer.groups[0].lr_factor, 0.125);
  EXPECT_EQ(adamw.optimizer.groups[1].parameters, "embedding.weight");
  const TrainOptions adafactor = parsed(R"(
    optimizer = { name = "adafactor", lr = 1e-2, adafactor = { scale_parameter = true } }
  )");
  EXPECT_TRUE(adafactor.optimizer.adafactor.scale_parameter);
  EXPECT_FALSE(adafactor.optimizer.adafactor.beta1.has_value());
}

TEST(TrainOptions, EveryMistakeIsReportedAtOnce) {
  const std::string message = error_of([] {
    parsed(R"(
      length = "10 %"
      optimizer.name = "adam"
      schedule.name = "inverse_sqrt"
      validation.every = "sometimes"
      accumulate = 0
    )");
  });
  for (const char* part : {"length", "adamw", "warm-up", "sometimes", "accumulate"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
  }
}

TEST(TrainOptions, WhatOnlyLogsDoesNotChangeTheRunsIdentity) {
  TrainOptions options;
  const std::string hash = options_hash(options);
  options.log_every = 7;
  options.checkpoint_every = "5 steps";
  options.tensorboard = false;
  EXPECT_EQ(options_hash(options), hash);
  options.optimizer.lr = 5;
  EXPECT_NE(options_hash(options), hash);
}

}  // namespace
}  // namespace draftsmith::train
