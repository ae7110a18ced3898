// Rows of decoder-only models hold a prompt and its continuation: budgets and positions count both.
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/models.h"
#include "tests/train/fixtures.h"
#include "train/objectives/objective.h"
#include "train/teacher/teacher_source.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

// A trainable that notes the shapes of the rows that it reads.
class NotingTrainable : public PlainTrainable {
 public:
  using PlainTrainable::PlainTrainable;
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    tokens.push_back(batch.decoder_input.tokens.numel());
    widths.push_back(batch.decoder_input.tokens.size(1));
    return PlainTrainable::forward(batch, dropout);
  }
  std::vector<int64_t> tokens;
  std::vector<int64_t> widths;
};

model::TransformerConfig learned_positions(int64_t positions) {
  model::TransformerConfig config = model::gpt2_config({.vocabulary = kTestVocabulary, .decoder_layers = 1});
  config.max_positions = positions;
  config.initializer_range = 0.5;
  return config;
}

class RowLengths : public testing::Test {
 protected:
  // Prompts of 8 tokens, continued by 8: rows of 15.
  void SetUp() override {
    data::CorpusWriter writer(
        folder_ / "c.h5",
        {.tokenizer_hash = "none", .vocabulary = kTestVocabulary, .provenance = {{"prompts", "true"}}});
    for (int32_t i = 0; i < 12; ++i) {
      const std::vector<int32_t> tokens{3 + i, 4, 5, 6, 7, 8, 9, 10};
      writer.add(tokens, tokens);
    }
    writer.finish();
    corpus_.emplace(folder_ / "c.h5");
  }

  TemporaryDirectory folder_;
  std::optional<data::Corpus> corpus_;
};

TEST_F(RowLengths, ValidationKeepsToItsTokenBudget) {
  model::TransformerModel model(learned_positions(64), 1);
  NotingTrainable trainable(model);
  ValidationOptions options;
  options.token_budget = 32;
  const ValidationResult result = validate(trainable, {.corpus = &*corpus_}, options);
  EXPECT_EQ(result.labels, 12 * 8);
  EXPECT_EQ(trainable.tokens, std::vector<int64_t>(6, 30));
}

TEST_F(RowLengths, SamplesOfTheStudentEndAtTheTeachersLastPosition) {
  model::TransformerModel student(learned_positions(64), 1), teacher(learned_positions(20), 2);
  NotingTrainable trainable(student);
  LiveTeacher live(teacher);
  ObjectiveOptions options{.name = "distill"};
  options.distill.on_policy = {.share = 1, .max_new_tokens = 40};
  const auto objective = make_objective(options, {&trainable, &*corpus_, &live});
  objective->loss(trainable, make_batch(*corpus_, {0, 1, 2, 3}, trainable.info()), {.step = 1});
  EXPECT_EQ(trainable.widths, std::vector<int64_t>{20});
  // Without the teacher's limit samples go on.
  const Batch free = StudentSamples(options.distill.on_policy, *corpus_)
                         .batch(trainable, make_batch(*corpus_, {0, 1, 2, 3}, trainable.info()), 1);
  EXPECT_GT(free.decoder_input.tokens.size(1), 20);
}

}  // namespace
}  // namespace draftsmith::train
