// Lines of tasks as prompts: what is cut, what is kept, and what follows on a prompt.
#include <gmock/gmock.h>

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
  // Takes a decoder-only model of the shared data with a context of 512 tokens, if it is there.
  bool use_stories() {
    options_.model = test::data_dir() / "models/stories260k_hf";
    return std::filesystem::exists(options_.model);
  }

  const TemporaryDirectory root_;
  SuiteOptions options_;
};

TEST_F(EvaluationPrompts, CuttingIdsKeepsTheirEos) {
  const auto engine = make_model_engine(options_);
  TaskOptions task{.ids = true, .max_source_tokens = 3};
  bool cut = false;
  EXPECT_EQ(engine->encode("5 20 7 1", task, cut), (Prompt{5, 20, 1}));
  EXPECT_TRUE(cut);
  EXPECT_EQ(engine->encode("5 20 7 8", task, cut), (Prompt{5, 20, 7}));
  EXPECT_TRUE(cut);
  EXPECT_EQ(engine->encode("5 20 1", task, cut), (Prompt{5, 20, 1}));
  EXPECT_FALSE(cut);
  EXPECT_TRUE(engine->encode_continuation("5 20 7 8", task).empty()) << "an encoder's source begins no text";
}

TEST_F(EvaluationPrompts, PromptsMustLeaveRoomForTheNewTokens) {
  if (!use_stories()) GTEST_SKIP() << "no shared data";
  const auto engine = make_model_engine(options_);
  TaskOptions task{.ids = true, .max_new_tokens = 500};
  bool cut = false;
  EXPECT_EQ(engine->encode("5 6 7 8 9 10 11 12 13 14 15 16", task, cut).size(), 12);
  EXPECT_THAT(error_of([&] { engine->encode("5 6 7 8 9 10 11 12 13 14 15 16 17", task, cut); }),
              ::testing::HasSubstr("at most 12 prompt tokens"));
}

TEST_F(EvaluationPrompts, CuttingPromptsKeepsTheirSuffix) {
  if (!use_stories()) GTEST_SKIP() << "no shared data";
  const auto engine = make_model_engine(options_);
  const auto tokenizer = data::load_tokenizer(options_.model);
  TaskOptions task{.suffix = "The end"};
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
  if (!use_stories()) GTEST_SKIP() << "no shared data";
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
  whole.push_back(data::load_tokenizer(options_.model)->eos());
  EXPECT_EQ(both, whole);
  task.suffix = "The end";  // nothing of the text follows on it
  EXPECT_TRUE(engine->encode_continuation(text, task).empty());
  task.suffix = "";
  task.max_source_tokens = std::ssize(whole) - 1;
  EXPECT_TRUE(engine->encode_continuation(text, task).empty());
}

}  // namespace
}  // namespace draftsmith::evaluate
