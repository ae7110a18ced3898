// Training of models with a pruned vocabulary: labels without a row are left out, everything else is as usual.
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/pruning/pruning.h"
#include "tests/train/fixtures.h"
#include "tests/train/objectives/loss_fixtures.h"
#include "train/objectives/cross_entropy.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kRows = 15;

// The lower ids stay, 2 is the unknown token: about half of the reversal corpus's ids.
std::unique_ptr<model::TransformerModel> pruned_model() {
  const model::TransformerModel whole(tiny_config(), 5);
  return model::prune(whole, {.vocabulary_from = "text", .vocabulary_size = kRows},
                      {.token_counts = std::vector<int64_t>(kTestVocabulary, 1), .unknown = 2});
}

class PrunedVocabularyTraining : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 300, 1);
    write_reversal_corpus(folder_ / "validation.h5", 40, 2);
  }
  TemporaryDirectory folder_;
};

TEST_F(PrunedVocabularyTraining, TheLossIsOverTheLabelsItHas) {
  const auto model = pruned_model();
  PlainTrainable trainable(*model);
  const data::Corpus corpus(folder_ / "train.h5");
  const Batch batch = make_batch(corpus, {0, 1, 2, 3, 4}, model->info());
  const at::Tensor logits = model->head(hidden_at_labels(*model, batch, {}));  // [P,V]
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < batch.label_count(); ++i) {
    const int64_t label = batch.labels[i].item<int64_t>();
    if (label >= kRows) continue;
    sum -= logits[i].log_softmax(0)[label].item<double>();
    ++count;
  }
  ASSERT_GT(count, 5);
  ASSERT_LT(count, batch.label_count());
  const Loss loss = CrossEntropy({}).loss(trainable, batch, {});
  EXPECT_EQ(loss.count, count);
  EXPECT_NEAR(loss.sum.item<double>(), sum, 1e-4 * sum);
}

TEST_F(PrunedVocabularyTraining, ABatchWithoutALabelItHasCostsNothing) {
  const auto model = pruned_model();
  const at::Tensor hidden = at::ones({2, model->config().width});
  const HeadLabels labels = labels_in_head(*model, at::tensor({kRows, kTestVocabulary - 1}, at::kLong));
  EXPECT_EQ(labels.rows.size(0), 0);
  EXPECT_EQ(linear_cross_entropy(labels.of(hidden), model::head_weight(*model), labels.rows, 0.1).item<double>(), 0);
}

TEST_F(PrunedVocabularyTraining, ItLearnsAndIsSavedWithItsMaps) {
  const auto model = pruned_model();
  PlainTrainable trainable(*model);
  const data::Corpus corpus(folder_ / "train.h5");
  const data::Corpus validation(folder_ / "validation.h5");
  const ValidationInputs inputs{.corpus = &validation};
  ValidationOptions quiet;
  quiet.bleu_examples = 0;
  const ValidationResult before = validate(trainable, inputs, quiet);
  TrainOptions options = tiny_options();
  options.length = "5 epochs";
  options.dropout = 0;
  options.optimizer.lr = 1e-2;
  const TrainResult result =
      Trainer(TrainerInputs{.trainable = trainable, .corpus = corpus}, options, folder_ / "run").run();
  const auto trained = model::load_model(result.model, {.pack = false});
  EXPECT_EQ(trained->config().draft_vocabulary.ids, model->config().draft_vocabulary.ids);
  PlainTrainable saved(*trained);
  EXPECT_LT(validate(saved, inputs, quiet).loss, before.loss - 0.3);
}

// Every label counts in accuracy and alpha, those it lacks as missed.
TEST_F(PrunedVocabularyTraining, ValidationComparesWithTheTeacherOverAllIds) {
  const auto model = pruned_model();
  PlainTrainable trainable(*model);
  model::TransformerModel teacher(tiny_config(), 5);
  const data::Corpus validation(folder_ / "validation.h5");
  ValidationOptions quiet;
  quiet.bleu_examples = 0;
  const ValidationResult result = validate(trainable, {.corpus = &validation, .teacher = &teacher}, quiet);
  int64_t labels = 0;
  for (int64_t i = 0; i < validation.size(); ++i) labels += static_cast<int64_t>(validation.target(i).size());
  EXPECT_EQ(result.labels, labels);
  // Random weights are nearly uniform: 15 of 29 ids overlap.
  EXPECT_NEAR(*result.overlap, static_cast<double>(kRows) / kTestVocabulary, 0.15);
}

}  // namespace
}  // namespace draftsmith::train
