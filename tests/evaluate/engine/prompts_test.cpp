// Lines of tasks as prompts: what is cut, what is kept, and what follows on a prompt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/evaluation.h"
#include "model/files/checkpoint.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/paths.h"

namespace draftsmith::evaluate {
namespace {

// A T5 without a tokenizer; tests of text take shared data instead.
class EvaluationPrompts : public testing::Test {
 protected:
  void SetUp() override {
    model::save_model(root_ / "target", model::TransformerModel(model::t5_config({.decoder_layers = 1}), 1));
    options_.model = root_ / "target";
    options_.device = "cpu";
    options_.threads = 1;
  }

  const TemporaryDirectory root_;
  SuiteOptions options_;
};

TEST_F(EvaluationPrompts, CuttingIdsKeepsTheirEos) {
  const auto engine = make_model_engine(options_);
  TaskOptions task;
  task.ids = true;
  task.max_source_tokens = 3;
  bool cut = false;
  EXPECT_EQ(engine->encode("5 20 7 1", task, cut), (Prompt{5, 20, 1}));
  EXPECT_TRUE(cut);
  EXPECT_EQ(engine->encode("5 20 7 8", task, cut), (Prompt{5, 20, 7}));
  EXPECT_TRUE(cut);
  EXPECT_EQ(engine->encode("5 20 1", task, cut), (Prompt{5, 20, 1}));
  EXPECT_FALSE(cut);
}

TEST_F(EvaluationPrompts, PromptsMustLeaveRoomForTheNewTokens) {
  const std::filesystem::path stories = test::data_dir() / "models/stories260k_hf";  // a context of 512 tokens
  if (!std::filesystem::exists(stories)) GTEST_SKIP() << "no shared data";
  options_.model = stories;
  const auto engine = make_model_engine(options_);
  TaskOptions task;
  task.ids = true;
  task.max_new_tokens = 500;
  bool cut = false;
  EXPECT_EQ(engine->encode("5 6 7 8 9 10 11 12 13 14 15 16", task, cut).size(), 12);
  EXPECT_THAT(error_of([&] { engine->encode("5 6 7 8 9 10 11 12 13 14 15 16 17", task, cut); }),
              ::testing::HasSubstr("at most 12 prompt tokens"));
}

TEST_F(EvaluationPrompts, CuttingPromptsKeepsTheirSuffix) {
  const std::filesystem::path stories = test::data_dir() / "models/stories260k_hf";
  if (!std::filesystem::exists(stories)) GTEST_SKIP() << "no shared data";
  options_.model = stories;
  const auto engine = make_model_engine(options_);
  const auto tokenizer = data::load_tokenizer(stories);
  TaskOptions task;
  task.suffix = "The end";
  bool cut = false;
  Prompt whole = engine->encode("Once upon a time", task, cut);
  EXPECT_FALSE(cut);
  const auto end = tokenizer->encode(task.suffix);
  ASSERT_GT(whole.size(), end.size() + 3);
  EXPECT_TRUE(std::equal(end.rbegin(), end.rend(), whole.rbegin()));
  task.max_source_tokens = std::ssize(whole) - 2;
  const Prompt shorter = engine->encode("Once upon a time", task, cut);
  EXPECT_TRUE(cut);
  whole.erase(whole.end() - std::ssize(end) - 2, whole.end() - std::ssize(end));
  EXPECT_EQ(shorter, whole);
}

TEST_F(EvaluationPrompts, WhatACutPromptGoesOnWithIsTheRestOfItsText) {
  const std::filesystem::path stories = test::data_dir() / "models/stories260k_hf";
  if (!std::filesystem::exists(stories)) GTEST_SKIP() << "no shared data";
  options_.model = stories;
  const auto engine = make_model_engine(options_);
  const std::string text = "Once upon a time there was a little girl";
  TaskOptions task;
  EXPECT_TRUE(engine->encode_continuation(text, task).empty());
  bool cut = false;
  std::vector<int64_t> whole = engine->encode(text, task, cut);
  task.max_source_tokens = 4;
  std::vector<int64_t> both = engine->encode(text, task, cut);
  const auto rest = engine->encode_continuation(text, task);
  both.insert(both.end(), rest.begin(), rest.end());
  whole.push_back(data::load_tokenizer(stories)->eos());
  EXPECT_EQ(both, whole);
  task.suffix = "The end";  // nothing of the text follows on it
  EXPECT_TRUE(engine->encode_continuation(text, task).empty());
  task.suffix = "";
  task.max_source_tokens = std::ssize(whole) - 1;
  EXPECT_TRUE(engine->encode_continuation(text, task).empty());
}

TEST_F(EvaluationPrompts, AnEncodersSourceIsNoBeginningOfAText) {
  TaskOptions task;
  task.ids = true;
  task.max_source_tokens = 2;
  EXPECT_TRUE(make_model_engine(options_)->encode_continuation("5 20 7 8", task).empty());
}

TEST_F(EvaluationPrompts, PlainTextMeasuresHowWellADecoderOnlyModelPredictsIt) {
  const std::filesystem::path stories = test::data_dir() / "models/stories260k_hf";
  if (!std::filesystem::exists(stories)) GTEST_SKIP() << "no shared data";
  write_file_atomic(root_ / "text",
                    "Once upon a time there was a little girl. She had a dog and a cat, and they played.\n<|end|>\nThe "
                    "end.\n<|end|>\n");
  options_.model = stories;
  options_.drafter = {{"same", stories}};
  options_.max_new_tokens = 12;
  options_.repetitions = options_.warmup = 1;
  options_.resamples = 10;
  TaskOptions& task = options_.task.emplace_back();
  task.name = "text";
  task.source = root_ / "text";
  task.separator = "<|end|>";
  task.max_source_tokens = 8;
  task.metric.name = "none";
  SettingGrid& run = options_.run.emplace_back();
  run.decode.method = "assisted";
  run.drafter = {"same"};
  const auto result = run_evaluation(options_, root_ / "out", {.quiet = true});
  const auto prediction = to_json(result.results).at("tasks").at(0).at("prediction");
  EXPECT_EQ(prediction.at("lines"), 1);  // the other text is no longer than a prompt
  EXPECT_EQ(prediction.at("positions"), 12);
  EXPECT_LT(prediction.at("models").at("target").at("cross_entropy"), 4);  // of 512 pieces: 6.2 by chance
  EXPECT_DOUBLE_EQ(prediction.at("models").at("same").at("relative_accuracy"), 1);
  EXPECT_THAT(result.table, testing::HasSubstr("next tokens of 1 continuations"));
}

}  // namespace
}  // namespace draftsmith::evaluate
