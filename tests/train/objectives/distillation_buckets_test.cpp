// Distillation from k ids, the label and one bucket for the rest: against the form over all ids, finite differences and
// fp64.
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/train/objectives/distillation_fixtures.h"

namespace draftsmith::train {
namespace {

// A teacher of prepared blocks.
class GivenTeacher : public TeacherDistributions {
 public:
  explicit GivenTeacher(TeacherBlock all) : all_(std::move(all)) {}
  TeacherBlock block(const at::Tensor& positions) override {
    return {.ids = all_.ids.index_select(0, positions),
            .log_probs = all_.log_probs.index_select(0, positions),
            .tail_log_mass = all_.tail_log_mass.index_select(0, positions)};
  }

 private:
  TeacherBlock all_;
};

TEST(DistillationBuckets, GradientFromTopKEqualsFiniteDifferences) {
  const Lesson lesson = simple_lesson(3, 7);
  for (const DistillationTerms& terms : all_terms(0)) {
    TopKTeacher teacher(lesson.teacher_logits, lesson.label_ids(), 3, terms.temperature);
    expect_finite_differences(lesson, teacher, terms);
  }
}

TEST(DistillationBuckets, TopKOfAllIdsEqualsTheFullForm) {
  const Lesson lesson = simple_lesson();
  TableTeacher full(lesson.teacher_logits);
  for (const DistillationTerms& terms : all_terms(0.1)) {
    TopKTeacher top(lesson.teacher_logits, lesson.label_ids(), lesson.teacher_logits.size(1), terms.temperature);
    std::vector<at::Tensor> values, gradients;
    for (TeacherDistributions* teacher : std::initializer_list<TeacherDistributions*>{&full, &top}) {
      lesson.hidden.mutable_grad().reset();
      const at::Tensor loss = lesson.loss(*teacher, terms);
      loss.backward();
      values.push_back(loss.detach());
      gradients.push_back(lesson.hidden.grad().clone());
    }
    EXPECT_NEAR(values[0].item<double>(), values[1].item<double>(), 1e-10) << label_of(terms);
    EXPECT_LT(difference(gradients[0], gradients[1]), 1e-10) << label_of(terms);
  }
}

// Buckets only coarsen the distributions: a divergence cannot grow, and more ids cannot lower it.
TEST(DistillationBuckets, TopKIsALowerBoundThatRisesWithK) {
  const Lesson lesson = simple_lesson(5, 20);
  TableTeacher full(lesson.teacher_logits);
  for (const DivergenceKind& kind : kinds()) {
    const DistillationTerms terms{.lambda = 0, .kind = kind, .temperature = 2};
    const double whole = lesson.loss(full, terms).item<double>();
    double before = 0;
    for (const int64_t k : {1, 4, 12}) {
      TopKTeacher top(lesson.teacher_logits, lesson.label_ids(), k, 2);
      const double bound = lesson.loss(top, terms).item<double>();
      EXPECT_GE(bound, before - 1e-12) << label_of(terms);
      EXPECT_LT(bound, whole) << label_of(terms);
      before = bound;
    }
    EXPECT_GT(before, 0.5 * whole) << label_of(terms);
  }
}

// The gradient of a student with these logits [1,V]: its head is the unit matrix.
at::Tensor gradient_of(const at::Tensor& logits, const TeacherBlock& block, const DistillationTerms& terms) {
  const int64_t vocabulary = logits.size(1);
  const SharedRows shared(ids_config(vocabulary), vocabulary);
  const at::Tensor hidden = logits.clone().requires_grad_(true);
  GivenTeacher teacher(block);
  const Teaching teaching{.labels = at::zeros({1}, at::kLong),
                          .teacher = &teacher,
                          .positions = at::zeros({1}, at::kLong),
                          .shared = &shared};
  linear_distillation(hidden, at::eye(vocabulary, logits.options()), teaching, terms).backward();
  return hidden.grad();
}

TEST(DistillationBuckets, GradientsInFp32AreThoseInFp64WhereTheStudentGivesTheRestNothing) {
  // The student gives all ids but the first 1e-9 together, the teacher .05.
  constexpr int64_t kIds = 1000;
  at::Tensor logits = at::full({1, kIds}, std::log(1e-9 / (kIds - 1)), at::kDouble);
  logits[0][0] = 0;
  const TeacherBlock block{.ids = at::tensor({int64_t{0}, int64_t{-1}}, at::kLong).reshape({1, 2}),
                           .log_probs = at::full({1, 2}, std::log(.95), at::kDouble),
                           .tail_log_mass = at::full({1}, std::log(.05), at::kDouble)};
  for (const DivergenceKind& kind : kinds()) {
    const DistillationTerms terms{.lambda = 0, .kind = kind};
    const at::Tensor expected = gradient_of(logits, block, terms);
    const at::Tensor found = gradient_of(logits.to(at::kFloat), block, terms);
    EXPECT_LT(difference(found, expected), 1e-6) << label_of(terms);
    if (kind.divergence != Divergence::kForwardKl) continue;
    EXPECT_NEAR(found[0][0].item<double>(), .05, 1e-6);  // q - p
  }
}

TEST(DistillationBuckets, UnusedPlacesChangeNothingAndRowsOfThemTeachNothing) {
  const at::Tensor logits = at::tensor({1.0, -.5, .25, 0.0}, at::kDouble).reshape({1, 4});
  const auto block = [](std::vector<int64_t> ids, std::vector<double> logs, double rest) {
    const auto k = static_cast<int64_t>(ids.size());
    return TeacherBlock{.ids = at::tensor(ids, at::kLong).reshape({1, k}),
                        .log_probs = at::tensor(logs, at::kDouble).reshape({1, k}),
                        .tail_log_mass = at::full({1}, rest, at::kDouble)};
  };
  const double a = std::log(.5), b = std::log(.3), rest = std::log(.2), anything = -.125;
  for (const DivergenceKind& kind : kinds()) {
    const DistillationTerms terms{.lambda = 0, .kind = kind};
    const at::Tensor expected = gradient_of(logits, block({1, 3}, {a, b}, rest), terms);
    for (const TeacherBlock& other : {block({-1, 1, 3}, {anything, a, b}, rest), block({1, -1, 3}, {a, 0, b}, rest),
                                      block({1, 3, -1, -1}, {a, b, anything, -3}, rest)}) {
      EXPECT_LT(difference(gradient_of(logits, other, terms), expected), 1e-12) << label_of(terms);
    }
    EXPECT_GT(largest(expected), 1e-3);
    const at::Tensor none = gradient_of(logits, block({-1, -1}, {a, b}, rest), terms);
    EXPECT_EQ(largest(none), 0) << label_of(terms);
  }
}

TEST(DistillationBuckets, StudentsThatLackIdsOfTheTeacherAreNoneOfTheirs) {
  const Lesson smaller(4, 9, ids_config(13));  // the teacher's ids are among the student's
  TopKTeacher some(smaller.teacher_logits, smaller.label_ids(), 3, 1);
  for (const DistillationTerms& terms : all_terms(0)) {
    TopKTeacher at_temperature(smaller.teacher_logits, smaller.label_ids(), 9, terms.temperature);
    EXPECT_NEAR(smaller.loss(at_temperature, terms).item<double>(), loss_by_definition(smaller, terms), 1e-10);
  }
  expect_finite_differences(smaller, some, {.lambda = 0.4, .kind = {.divergence = Divergence::kReverseKl}});
  const Lesson larger(4, 13, ids_config(9)), pruned(4, 13, ids_config(13, {0, 3, 4, 9, 12}));
  for (const Lesson* lesson : {&larger, &pruned}) {
    TopKTeacher teacher(lesson->teacher_logits, lesson->label_ids(), 3, 1);
    EXPECT_TRUE(lesson->shared.lacks);
    EXPECT_THROW(lesson->loss(teacher, {.lambda = 0}), std::logic_error);
  }
}

}  // namespace
}  // namespace draftsmith::train
