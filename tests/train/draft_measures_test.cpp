// A speculative decode as a validation measure: its numbers are those of decoding and of forced passes done by hand.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/fixtures.h"

namespace draftsmith::train {
namespace {

class DraftedValidation : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 100, 1);
    write_reversal_corpus(folder_ / "validation.h5", 20, 2);
  }

  static ValidationOptions drafting(double temperature) {
    ValidationOptions options;
    options.draft_examples = 12;
    options.draft_window = 3;
    options.draft_temperature = temperature;
    options.max_new_tokens = 10;
    return options;
  }

  DraftMeasures measure(model::TransformerModel& trained, model::TransformerModel& target, double temperature) const {
    const data::Corpus corpus(folder_ / "validation.h5");
    PlainTrainable trainable(trained);
    return validate(trainable, {.corpus = &corpus, .teacher = &target}, drafting(temperature)).drafts.value();
  }

  std::vector<std::vector<int64_t>> sources() const {
    const data::Corpus corpus(folder_ / "validation.h5");
    std::vector<std::vector<int64_t>> found;
    for (int64_t i = 0; i < 12; ++i) found.emplace_back(corpus.source(i).begin(), corpus.source(i).end());
    return found;
  }

  TemporaryDirectory folder_;
};

// The target's outputs, decoded without any drafter.
std::vector<std::vector<int64_t>> outputs_of(model::TransformerModel& target,
                                             const std::vector<std::vector<int64_t>>& sources) {
  infer::DecodeOptions options;
  options.max_new_tokens = 10;
  infer::GenerationModels models;
  models.target = &target;
  std::vector<std::vector<int64_t>> outputs;
  for (const auto& result : infer::Generator(models, options).generate(sources)) outputs.push_back(result.ids);
  return outputs;
}

TEST_F(DraftedValidation, ForcedMeasuresAreOnTheTargetsOwnOutputs) {
  model::TransformerModel trained(tiny_config(), 5), target(tiny_config(), 6);
  const auto outputs = outputs_of(target, sources());
  const auto expected = infer::measure_forced_alpha({target, trained}, sources(), outputs, {.temperature = 0});
  const DraftMeasures found = measure(trained, target, 0);
  EXPECT_DOUBLE_EQ(found.agreement, expected.agreement);
  EXPECT_DOUBLE_EQ(found.alpha_forced, expected.alpha);
  EXPECT_DOUBLE_EQ(found.alpha_forced, found.agreement) << "greedy";
}

TEST_F(DraftedValidation, AlphaAndTokensPerRunAreTheDecodes) {
  model::TransformerModel trained(tiny_config(), 5), target(tiny_config(), 6);
  for (const double temperature : {0.0, 1.0}) {
    infer::DecodeOptions options;
    options.method = "speculative";
    options.window = 3;
    options.temperature = temperature;
    options.measure_alpha = true;
    options.max_new_tokens = 10;
    infer::GenerationModels models;
    models.target = &target;
    models.drafter = infer::as_drafter(trained);
    const auto stats = infer::total(infer::Generator(models, options).generate(sources()));
    const DraftMeasures found = measure(trained, target, temperature);
    EXPECT_NEAR(found.alpha, stats.alpha(), 1e-6) << temperature;
    EXPECT_DOUBLE_EQ(found.tokens_per_target_run, stats.tokens_per_target_run()) << temperature;
  }
}

TEST_F(DraftedValidation, ATargetThatDraftsForItselfIsAlwaysRight) {
  model::TransformerModel model(tiny_config(), 5);
  for (const double temperature : {0.0, 1.0}) {
    const DraftMeasures found = measure(model, model, temperature);
    EXPECT_NEAR(found.alpha, 1, 1e-5);
    EXPECT_NEAR(found.alpha_forced, 1, 1e-5);
    EXPECT_EQ(found.agreement, 1);
    EXPECT_GT(found.tokens_per_target_run, 2);  // 4 but for ends of texts
  }
}

TEST_F(DraftedValidation, ChoosesTheBestModelAndShowsItsCost) {
  const data::Corpus corpus(folder_ / "train.h5"), validation(folder_ / "validation.h5");
  model::TransformerModel model(tiny_config(), 5), target(tiny_config(), 6);
  PlainTrainable trainable(model);
  for (const std::string measure : {"agreement", "alpha_forced", "alpha", "tokens_per_target_run"}) {
    TrainOptions options = tiny_options();
    options.length = "2 steps";
    options.validation = drafting(1);
    options.validation.measure = measure;
    const TrainResult result =
        Trainer({.trainable = trainable, .corpus = corpus, .validation = &validation, .teacher = &target}, options,
                folder_ / measure)
            .run();
    const auto summary = nlohmann::json::parse(read_file(folder_ / measure / "validation.json"));
    EXPECT_EQ(summary.at("model").at(measure).get<double>(), *result.state.best_value);
    EXPECT_NE(summary.at("model").at("overlap"), summary.at("model").at("alpha"));
    const std::string log = read_file(folder_ / measure / "metrics.jsonl");
    EXPECT_NE(log.find("\"decoding_seconds\""), std::string::npos) << log;
  }
}

TEST_F(DraftedValidation, WhatCannotBeMeasuredIsRefused) {
  const data::Corpus corpus(folder_ / "validation.h5");
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  const std::string message = error_of([&] { check_validation(trainable, {.corpus = &corpus}, drafting(0)); });
  EXPECT_NE(message.find("needs a target"), std::string::npos) << message;
  TrainOptions options = tiny_options();
  options.validation.measure = "alpha";
  Problems problems;
  validate_options(options, "train", problems);
  const std::string refused = error_of([&] { problems.throw_if_any(); });
  EXPECT_NE(refused.find("draft_examples above 0"), std::string::npos) << refused;
  EXPECT_NE(refused.find("\"overlap\""), std::string::npos) << refused;
}

TEST_F(DraftedValidation, ATextThatFailsIsAnErrorAndNotLeftOut) {
  model::TransformerModel trained(tiny_config(), 5), target(tiny_config(), 6);
  {
    const at::NoGradGuard no_gradients;
    target.parameters().at("embedding.weight")[sources()[3][0]].fill_(std::nan(""));
  }
  EXPECT_THAT(error_of<RunError>([&] { measure(trained, target, 0); }), testing::HasSubstr("not finite"));
}

}  // namespace
}  // namespace draftsmith::train
