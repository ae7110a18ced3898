// The objective distill: live teachers, samples of the student, means over sequences, exact resume.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "tests/train/objectives/fixtures.h"
#include "tests/train/trainable/fixtures.h"
#include "train/training_step.h"
#include "train/validation.h"

namespace draftsmith::train {
namespace {

ObjectiveOptions distill_options(double lambda = 0.5) {
  ObjectiveOptions options{.name = "distill"};
  options.distill.lambda = lambda;
  return options;
}

// Stored distributions, of which only the description is read.
class StoredTeacher : public TeacherSource {
 public:
  StoredTeacher(int64_t vocabulary, double temperature) : vocabulary_(vocabulary), temperature_(temperature) {}
  std::string name() const override { return "teacher.h5"; }
  int64_t vocabulary() const override { return vocabulary_; }
  std::optional<double> temperature() const override { return temperature_; }
  std::unique_ptr<TeacherDistributions> distributions(const Batch&) override { return nullptr; }

 private:
  int64_t vocabulary_;
  double temperature_;
};

class DistillTest : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 200, 1);
    write_reversal_corpus(folder_ / "validation.h5", 30, 2);
    corpus_.emplace(folder_ / "train.h5");
  }

  // The message of making the objective for a student with this teacher.
  std::string error_with(TeacherSource* source, const ObjectiveOptions& options) {
    return error_of([&] { make_objective(options, {&trainable_, &*corpus_, source}); });
  }

  TrainResult train(const std::string& directory, const TrainOptions& options, TeacherSource& source,
                    uint64_t seed = 5) {
    model::TransformerModel student(tiny_config(), seed);
    PlainTrainable trainable(student);
    const data::Corpus validation(folder_ / "validation.h5");
    return run_training({.trainable = trainable,
                         .corpus = *corpus_,
                         .validation = {.corpus = &validation, .teacher = &teacher_},
                         .distilled = &source},
                        options, folder_ / directory);
  }

  TemporaryDirectory folder_;
  std::optional<data::Corpus> corpus_;
  model::TransformerModel student_{tiny_config(), 5}, teacher_{tiny_config(), 6};
  PlainTrainable trainable_{student_};
};

// Probabilities of a model at a batch's labels. [P,V]
at::Tensor probabilities_at(model::TransformerModel& model, const Batch& batch) {
  return model.head(hidden_at_labels(model, batch, {})).to(at::kDouble).softmax(1);
}

TEST_F(DistillTest, TheLossIsTheMixtureOverALiveTeachersDistributions) {
  LiveTeacher source(teacher_);
  const auto objective = make_objective(distill_options(0.3), {&trainable_, &*corpus_, &source});
  const at::NoGradGuard no_grad;
  const Batch batch = make_batch(*corpus_, {0, 1, 2}, student_.info());
  const at::Tensor p = probabilities_at(teacher_, batch), q = probabilities_at(student_, batch);  // [P,V]
  const double nll = -q.gather(1, batch.labels.unsqueeze(1)).log().sum().item<double>();
  const double kl = (p * (p.log() - q.log())).sum().item<double>();
  const Loss loss = objective->loss(trainable_, batch, {});
  EXPECT_NEAR(loss.sum.item<double>(), 0.3 * nll + 0.7 * kl, 1e-4 * nll);
  EXPECT_EQ(loss.count, batch.label_count());
}

TEST_F(DistillTest, LabelSmoothingIsThatOfTheObjective) {
  const Batch batch = make_batch(*corpus_, {0, 1, 2}, student_.info());
  const at::NoGradGuard no_grad;
  const at::Tensor logs = probabilities_at(student_, batch).log();
  const double nll = -logs.gather(1, batch.labels.unsqueeze(1)).sum().item<double>();
  const double smoothed = 0.6 * nll - 0.4 * logs.mean(1).sum().item<double>();
  LiveTeacher source(teacher_);
  ObjectiveOptions plain, distilled = distill_options(1);
  plain.cross_entropy.label_smoothing = distilled.distill.label_smoothing = 0.4;
  for (const ObjectiveOptions& options : {plain, distilled}) {
    const auto objective = make_objective(options, {&trainable_, &*corpus_, &source});
    EXPECT_NEAR(objective->loss(trainable_, batch, {}).sum.item<double>(), smoothed, 1e-4 * nll) << options.name;
  }
}

// Labels that the student lacks are left out; the teacher's distribution is normalised over the ids that it has.
TEST_F(DistillTest, APrunedStudentLearnsItsLabelsAndWhatTheTeacherThinksOfItsIds) {
  const auto small = pruned(student_);
  PlainTrainable trainable(*small);
  LiveTeacher source(teacher_);
  const Batch batch = make_batch(*corpus_, {0, 1, 2, 3, 4}, small->info());
  const at::NoGradGuard no_grad;
  const Loss loss = make_objective(distill_options(0.3), {&trainable, &*corpus_, &source})->loss(trainable, batch, {});
  const at::Tensor known = batch.labels.lt(kPrunedRows).nonzero().squeeze(1);
  at::Tensor p = probabilities_at(teacher_, batch).index_select(0, known).narrow(1, 0, kPrunedRows);  // [Q,15]
  p = p / p.sum(1, true);
  const at::Tensor q = probabilities_at(*small, batch).index_select(0, known).narrow(1, 0, kPrunedRows);
  const double nll = -q.gather(1, batch.labels.index_select(0, known).unsqueeze(1)).log().sum().item<double>();
  const double kl = (p * (p.log() - q.log())).sum().item<double>();
  ASSERT_LT(known.size(0), batch.label_count());
  EXPECT_EQ(loss.count, known.size(0));
  EXPECT_NEAR(loss.sum.item<double>(), 0.3 * nll + 0.7 * kl, 1e-4 * nll);
}

TEST_F(DistillTest, PrunedModelsNeitherLearnFromSomeIdsNorTeach) {
  const auto small = pruned(student_);
  PlainTrainable trainable(*small);
  const Batch batch = make_batch(*corpus_, {0, 1}, small->info());
  StoredTeacher stored(kTestVocabulary, 1), larger(kTestVocabulary + 3, 1);
  const auto from_some = make_objective(distill_options(), {&trainable, &*corpus_, &stored});
  EXPECT_THAT(error_of([&] { from_some->loss(trainable, batch, {}); }),
              AllOf(HasSubstr("teacher.h5"), HasSubstr("a pruned vocabulary of 15 ids"), HasSubstr("k = 0")));
  const auto padded = make_objective(distill_options(), {&trainable_, &*corpus_, &larger});
  EXPECT_THAT(error_of([&] { padded->loss(trainable_, batch, {}); }), HasSubstr("lacks ids"));
  EXPECT_THAT(error_of([&] { LiveTeacher narrow(*small); }), HasSubstr("15 rows"));
}

// Without ground truth the teacher is all there is to learn.
TEST_F(DistillTest, TheStudentComesToAgreeWithItsTeacher) {
  LiveTeacher source(teacher_);
  const data::Corpus validation(folder_ / "validation.h5");
  const double before = *validate(trainable_, {.corpus = &validation, .teacher = &teacher_}, {}).overlap;
  for (const std::string& divergence : divergence_names()) {
    TrainOptions options = tiny_options();
    options.length = "15 steps";
    options.dropout = 0;
    options.optimizer.lr = 2e-2;
    options.schedule = {};
    options.objective = distill_options(0);
    options.objective.distill.divergence = divergence;
    options.validation.measure = "overlap";
    const TrainResult result = train(divergence, options, source);
    EXPECT_GT(*result.state.best_value, before + 0.05) << divergence << " from " << before;
  }
}

TEST_F(DistillTest, WithoutWeightOnTheDivergenceNoTeacherIsAsked) {
  StoredTeacher stored(kTestVocabulary, 1);  // has nothing to give
  const at::NoGradGuard no_grad;
  const Batch batch = make_batch(*corpus_, {3, 4}, student_.info());
  const Loss loss = make_objective(distill_options(1), {&trainable_, &*corpus_, &stored})->loss(trainable_, batch, {});
  EXPECT_EQ(loss.sum.item<double>(), make_objective({})->loss(trainable_, batch, {}).sum.item<double>());
}

TEST_F(DistillTest, TheShareOfOnPolicyMicroBatchesIsTheOneAskedFor) {
  for (const double share : {0.25, 1.0}) {
    const StudentSamples samples({.share = share}, *corpus_);
    int64_t taken = 0;
    for (uint64_t step = 0; step < 2000; ++step) taken += samples.takes(step) ? 1 : 0;
    // Five standard deviations of a fair draw, which a right share leaves once in two million seeds.
    EXPECT_NEAR(static_cast<double>(taken), 2000 * share, 5 * std::sqrt(2000 * share * (1 - share)) + 1e-9);
  }
}

TEST_F(DistillTest, SamplesAreOfTheSameSourcesAndDependOnTheMicroStepAlone) {
  const StudentSamples samples({.share = 1, .max_new_tokens = 9}, *corpus_);
  const Batch given = make_batch(*corpus_, {5, 0, 7}, student_.info());
  const Batch first = samples.batch(trainable_, given, 4), again = samples.batch(trainable_, given, 4),
              other = samples.batch(trainable_, given, 5);
  EXPECT_TRUE(first.labels.equal(again.labels));
  EXPECT_FALSE(first.labels.equal(other.labels));
  EXPECT_FALSE(first.labels.equal(given.labels));
  EXPECT_TRUE(first.source.tokens.equal(given.source.tokens));
  for (const int64_t length : first.decoder_input.lengths) EXPECT_LE(length, 9);
  // Each input is the label before it.
  EXPECT_EQ(first.decoder_input.tokens[0][1].item<int64_t>(), first.labels[0].item<int64_t>());
}

TEST_F(DistillTest, SamplesStayWithinTheBudgetOfBatches) {
  const OnPolicyOptions options{.share = 1, .max_new_tokens = 20};
  std::vector<int64_t> examples(30);
  std::iota(examples.begin(), examples.end(), 0);
  const Batch given = make_batch(*corpus_, examples, student_.info());
  const Batch all = StudentSamples(options, *corpus_).batch(trainable_, given, 4);
  ASSERT_GT(all.decoder_input.tokens.numel(), 240);
  const Batch some = StudentSamples(options, *corpus_, 240).batch(trainable_, given, 4);
  EXPECT_LE(some.decoder_input.tokens.numel(), 240);
  EXPECT_GE(some.decoder_input.tokens.numel(), 120);
  EXPECT_TRUE(some.labels.equal(all.labels.narrow(0, 0, some.label_count())));
  EXPECT_EQ(StudentSamples(options, *corpus_, 1).batch(trainable_, given, 4).decoder_input.tokens.size(0), 1);
}

TEST_F(DistillTest, SamplesLearnFromTheTeacherAlone) {
  LiveTeacher source(teacher_);
  ObjectiveOptions options = distill_options(0.4);
  options.distill.on_policy = {.share = 1, .max_new_tokens = 9};
  const auto objective = make_objective(options, {&trainable_, &*corpus_, &source});
  const StudentSamples samples(options.distill.on_policy, *corpus_);
  const at::NoGradGuard no_grad;
  const Batch given = make_batch(*corpus_, {5, 0, 7}, student_.info());
  const Batch batch = samples.batch(trainable_, given, 3);
  const at::Tensor p = probabilities_at(teacher_, batch), q = probabilities_at(student_, batch);
  const Loss loss = objective->loss(trainable_, given, {.step = 3});
  EXPECT_EQ(loss.count, batch.label_count());
  EXPECT_NEAR(loss.sum.item<double>(), 0.6 * (p * (p.log() - q.log())).sum().item<double>(), 1e-3);
}

TEST_F(DistillTest, StoppedRunsWithSamplesEndWithTheSameBits) {
  LiveTeacher source(teacher_);
  TrainOptions options = tiny_options();
  options.length = "8 steps";
  options.checkpoint_every = "";
  options.objective = distill_options();
  options.objective.distill.on_policy = {.share = 0.5, .max_new_tokens = 9};
  expect_exact_resume(folder_.path(), [&](uint64_t seed, const std::string& run) { train(run, options, source, seed); },
                      {"model.safetensors"});
}

TEST_F(DistillTest, TeachersThatDoNotFitAreRefusedAndBothSidesNamed) {
  model::TransformerConfig config = tiny_config();
  config.decoder_start = 3;
  config.vocabulary = 20;
  model::TransformerModel other(config, 6);
  LiveTeacher live(other);
  EXPECT_THAT(error_with(&live, distill_options()),
              AllOf(HasSubstr("train.h5 has more token ids than the teacher"), HasSubstr("decoder_start_token_id 0")));
  StoredTeacher stored(kTestVocabulary, 2);
  ObjectiveOptions options = distill_options();
  options.distill.on_policy.share = 0.1;
  EXPECT_THAT(error_with(&stored, options), HasSubstr("temperature 2"));
  options.distill.lambda = 1;
  LiveTeacher fitting(teacher_);
  EXPECT_THAT(error_with(&fitting, options), HasSubstr("no weight"));
}

TEST(WeightedDistillation, WeighsEachPositionsLossAndGradient) {
  const Lesson lesson = simple_lesson();
  const at::Tensor weights = at::tensor({1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0, 0.5, 0.5}, at::kDouble);
  TableTeacher whole(lesson.teacher_logits);
  GivenTeacher likeliest = top_k_teacher(lesson.teacher_logits, lesson.labels, 3, 1);
  for (const bool top_k : {false, true}) {
    for (const DistillOptions& options : all_options(0.2)) {
      if (top_k && options.temperature != 1) continue;
      TeacherDistributions& teacher = top_k ? static_cast<TeacherDistributions&>(likeliest) : whole;
      const auto loss_at = [&](int64_t first, int64_t count, const at::Tensor& factors) {
        return linear_distillation(
            lesson.hidden.narrow(0, first, count), lesson.weight,
            {.labels = {lesson.labels.narrow(0, first, count), lesson.positions_of.narrow(0, first, count)},
             .weights = factors},
            teacher, lesson.shared, options);
      };
      double expected = 0;
      for (int64_t t = 0; t < 6; ++t) expected += weights[t].item<double>() * loss_at(t, 1, {}).item<double>();
      lesson.hidden.mutable_grad().reset();
      lesson.weight.mutable_grad().reset();
      const at::Tensor loss = loss_at(0, 6, weights);
      EXPECT_NEAR(loss.item<double>(), expected, 1e-12 * std::max(1.0, expected)) << label_of(options);
      loss.backward();
      const auto value = [&] { return loss_at(0, 6, weights).item<double>(); };
      EXPECT_LT(difference(lesson.hidden.grad(), numeric_gradient(lesson.hidden, value)), 1e-7) << label_of(options);
      EXPECT_LT(difference(lesson.weight.grad(), numeric_gradient(lesson.weight, value)), 1e-7) << label_of(options);
    }
  }
}

class SequenceNormalization : public DistillTest {
 protected:
  std::unique_ptr<Objective> objective(const TrainableModel& trainable, const std::string& normalization,
                                       double lambda) {
    ObjectiveOptions options = distill_options(lambda);
    options.distill.normalization = normalization;
    return make_objective(options, {&trainable, &*corpus_, &source_});
  }

  // Compares with the mean losses of examples, each computed alone with equal weights of its labels.
  void expect_means(TrainableModel& trainable, double lambda) {
    const at::NoGradGuard no_grad;
    const auto by_label = objective(trainable, "tokens", lambda);
    double expected = 0;
    for (int64_t example = 0; example < 5; ++example) {
      const Loss loss = by_label->loss(trainable, make_batch(*corpus_, {example}, trainable.info()), {});
      EXPECT_FALSE(loss.sequences.has_value());
      expected += loss.sum.item<double>() / static_cast<double>(std::max<int64_t>(1, loss.count));
    }
    const Batch batch = make_batch(*corpus_, {0, 1, 2, 3, 4}, trainable.info());
    const Loss loss = objective(trainable, "sequences", lambda)->loss(trainable, batch, {});
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4 * expected) << lambda;
    EXPECT_EQ(loss.divisor(), 5);
    const Loss of_labels = by_label->loss(trainable, batch, {});
    EXPECT_EQ(loss.count, of_labels.count);
    const double mean = of_labels.sum.item<double>() / static_cast<double>(of_labels.count);
    EXPECT_GT(std::abs(mean - expected / 5), 1e-3) << "lengths must differ";
  }

  // The gradients of a step's micro-batches, scaled as for an update.
  Weights gradients_of(const std::string& normalization, const MicroBatches& micro_batches) {
    require_gradients(trainable_, true);
    for (const auto& [name, parameter] : student_.parameters()) at::Tensor(parameter).mutable_grad().reset();
    const StepResult result =
        accumulate_gradients(trainable_, *objective(trainable_, normalization, 0.3), *corpus_, micro_batches, {});
    Weights gradients;
    for (const auto& [name, parameter] : student_.parameters()) {
      gradients[name] = parameter.grad() * gradient_scale(result, 0);
    }
    return gradients;
  }

  LiveTeacher source_{teacher_};
};

TEST_F(SequenceNormalization, TheLossIsTheSumOfTheSequencesMeans) {
  for (const double lambda : {0.0, 0.3, 1.0}) expect_means(trainable_, lambda);
  const auto small = pruned(student_);  // labels that it lacks are no part of the mean
  PlainTrainable trainable(*small);
  expect_means(trainable, 0.3);
}

TEST_F(SequenceNormalization, AccumulatedGradientsEqualThoseOfTheLargeBatch) {
  const MicroBatches parts{{0, 1, 2, 3, 4, 5, 6}, {7}, {8, 9}}, whole{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  EXPECT_EQ(differences(gradients_of("sequences", parts), gradients_of("sequences", whole), 1e-4), "");
  EXPECT_NE(differences(gradients_of("sequences", whole), gradients_of("tokens", whole), 1e-2), "");
}

// Predictions of some labels only have no whole sequences.
TEST_F(SequenceNormalization, ModelsThatPredictOtherLabelsAreRefused) {
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
              HasSubstr("normalization"));
}

}  // namespace
}  // namespace draftsmith::train
