// Losses that are means over sequences: their values and gradients by definition, in one batch, in several
// micro-batches and with a pruned vocabulary.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/train/objectives/fixtures.h"
#include "train/objectives/distill.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

TEST(SequenceNormalization, WeighsEachPositionsLossAndGradient) {
  const Lesson lesson = simple_lesson();
  const at::Tensor weights = at::tensor({1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0, 0.5, 0.5}, at::kDouble);
  TableTeacher whole(lesson.teacher_logits);
  GivenTeacher likeliest = top_k_teacher(lesson.teacher_logits, lesson.labels, 3, 1);
  for (const bool top_k : {false, true}) {
    for (const DistillationTerms& terms : all_terms(0.2)) {
      if (top_k && terms.temperature != 1) continue;
      TeacherDistributions& teacher = top_k ? static_cast<TeacherDistributions&>(likeliest) : whole;
      const auto loss_at = [&](int64_t first, int64_t count, const at::Tensor& factors) {
        return linear_distillation(lesson.hidden.narrow(0, first, count), lesson.weight,
                                   {.labels = lesson.labels.narrow(0, first, count),
                                    .teacher = &teacher,
                                    .positions = lesson.positions_of.narrow(0, first, count),
                                    .shared = &lesson.shared,
                                    .weights = factors},
                                   terms);
      };
      double expected = 0;
      for (int64_t t = 0; t < 6; ++t) expected += weights[t].item<double>() * loss_at(t, 1, {}).item<double>();
      lesson.hidden.mutable_grad().reset();
      lesson.weight.mutable_grad().reset();
      const at::Tensor loss = loss_at(0, 6, weights);
      EXPECT_NEAR(loss.item<double>(), expected, 1e-12 * std::max(1.0, expected)) << label_of(terms);
      loss.backward();
      const auto value = [&] { return loss_at(0, 6, weights).item<double>(); };
      EXPECT_LT(difference(lesson.hidden.grad(), numeric_gradient(lesson.hidden, value)), 1e-7) << label_of(terms);
      EXPECT_LT(difference(lesson.weight.grad(), numeric_gradient(lesson.weight, value)), 1e-7) << label_of(terms);
    }
  }
}

class SequenceNormalizationTest : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 20, 1);
    corpus_.emplace(folder_ / "train.h5");
  }

  std::unique_ptr<Objective> objective(const TrainableModel& trainable, const std::string& normalization,
                                       double lambda) {
    ObjectiveOptions options{.name = "distill"};
    options.distill.lambda = lambda;
    options.distill.normalization = normalization;
    return make_objective(options, {&trainable, &*corpus_, &source_});
  }

  // The sum of the mean losses of examples, each computed alone with equal weights of its labels.
  double sum_of_means(TrainableModel& trainable, const std::vector<int64_t>& examples, double lambda) {
    const at::NoGradGuard no_grad;
    const auto by_label = objective(trainable, "tokens", lambda);
    double sum = 0;
    for (const int64_t example : examples) {
      const Loss loss = by_label->loss(trainable, make_batch(*corpus_, {example}, trainable.info()), {});
      EXPECT_FALSE(loss.sequences.has_value());
      sum += loss.sum.item<double>() / static_cast<double>(std::max<int64_t>(1, loss.count));
    }
    return sum;
  }

  void expect_means(TrainableModel& trainable, double lambda) {
    const at::NoGradGuard no_grad;
    const std::vector<int64_t> examples{0, 1, 2, 3, 4};
    const Batch batch = make_batch(*corpus_, examples, trainable.info());
    const Loss loss = objective(trainable, "sequences", lambda)->loss(trainable, batch, {});
    const double expected = sum_of_means(trainable, examples, lambda);
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4 * expected) << lambda;
    EXPECT_EQ(loss.sequences, 5);
    EXPECT_EQ(loss.divisor(), 5);
    const Loss by_label = objective(trainable, "tokens", lambda)->loss(trainable, batch, {});
    EXPECT_EQ(loss.count, by_label.count);
    const double mean = by_label.sum.item<double>() / static_cast<double>(by_label.count);
    EXPECT_GT(std::abs(mean - expected / 5), 1e-3) << "lengths must differ";
  }

  // The gradients of a step's micro-batches, scaled as for an update.
  std::map<std::string, at::Tensor> gradients_of(const std::string& normalization, const MicroBatches& micro_batches) {
    model::TransformerModel student(tiny_config(), 5);
    PlainTrainable trainable(student);
    student.requires_grad(true);
    const StepResult result =
        accumulate_gradients(trainable, *objective(trainable, normalization, 0.3), *corpus_, micro_batches, {});
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, parameter] : student.parameters()) {
      gradients[name] = parameter.grad() * gradient_scale(result, 0);
    }
    return gradients;
  }

  TemporaryDirectory folder_;
  std::optional<data::Corpus> corpus_;
  model::TransformerModel student_{tiny_config(), 5}, teacher_{tiny_config(), 6};
  LiveTeacher source_{teacher_};
};

TEST_F(SequenceNormalizationTest, TheLossIsTheSumOfTheSequencesMeans) {
  PlainTrainable trainable(student_);
  for (const double lambda : {0.0, 0.3, 1.0}) expect_means(trainable, lambda);
}

TEST_F(SequenceNormalizationTest, LabelsThatAPrunedStudentLacksAreNoPartOfTheMean) {
  const auto small = pruned(student_);
  PlainTrainable trainable(*small);
  expect_means(trainable, 0.3);
}

TEST_F(SequenceNormalizationTest, AccumulatedGradientsEqualThoseOfTheLargeBatch) {
  const MicroBatches parts{{0, 1, 2, 3, 4, 5, 6}, {7}, {8, 9}};
  const MicroBatches whole{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  EXPECT_EQ(differences(gradients_of("sequences", parts), gradients_of("sequences", whole), 1e-4), "");
  EXPECT_NE(differences(gradients_of("sequences", whole), gradients_of("tokens", whole), 1e-2), "");
}

// Predictions of some labels only have no whole sequences.
TEST_F(SequenceNormalizationTest, ModelsThatPredictOtherLabelsAreRefused) {
  class Halved : public PlainTrainable {
   public:
    using PlainTrainable::PlainTrainable;
    TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
      TrainableOutput output = PlainTrainable::forward(batch, dropout);
      Predictions& only = output.predictions.front();
      only.labels = only.labels.narrow(0, 0, 1);
      only.hidden = only.hidden.narrow(0, 0, 1);
      return output;
    }
  };
  Halved trainable(student_);
  const at::NoGradGuard no_grad;
  const Batch batch = make_batch(*corpus_, {0, 1}, student_.info());
  EXPECT_THAT(error_of([&] { objective(trainable, "sequences", 1.0)->loss(trainable, batch, {}); }),
              testing::HasSubstr("normalization"));
}

}  // namespace
}  // namespace draftsmith::train
