// Distillation from whole distributions: its value against definitions written out with plain loops, its gradient
// against finite differences.
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/train/objectives/distillation_fixtures.h"

namespace draftsmith::train {
namespace {

TEST(Distillation, EqualsItsDefinition) {
  const Lesson lesson = simple_lesson();
  TableTeacher teacher(lesson.teacher_logits);
  for (const double smoothing : {0.0, 0.2}) {
    for (const DistillationTerms& terms : all_terms(smoothing)) {
      EXPECT_NEAR(lesson.loss(teacher, terms).item<double>(), loss_by_definition(lesson, terms), 1e-10)
          << label_of(terms);
    }
  }
}

TEST(Distillation, GradientEqualsFiniteDifferences) {
  const Lesson lesson = simple_lesson(3, 7);
  TableTeacher teacher(lesson.teacher_logits);
  for (const DistillationTerms& terms : all_terms(0.1)) expect_finite_differences(lesson, teacher, terms);
}

TEST(Distillation, AStudentLikeItsTeacherHasNothingToLearn) {
  const Lesson lesson = simple_lesson();
  const at::Tensor own = lesson.hidden.detach().mm(lesson.weight.detach().t());
  TableTeacher full(own);
  TopKTeacher top(own, lesson.label_ids(), 4, 1);
  for (const DivergenceKind& kind : kinds()) {
    for (TeacherDistributions* teacher : std::initializer_list<TeacherDistributions*>{&full, &top}) {
      lesson.hidden.mutable_grad().reset();
      const at::Tensor loss = lesson.loss(*teacher, {.lambda = 0, .kind = kind});
      EXPECT_NEAR(loss.item<double>(), 0, 1e-12);
      if (kind.divergence == Divergence::kTotalVariation) continue;  // its kink: rounding decides the sign
      loss.backward();
      EXPECT_LT(largest(lesson.hidden.grad()), 1e-12);
    }
  }
}

// Padded vocabularies differ between sizes of a family, both ways; ids that one lacks are left out of the divergence.
TEST(Distillation, ComparesOverTheIdsThatBothHave) {
  const Lesson larger_teacher(4, 13, ids_config(9)), smaller_teacher(4, 9, ids_config(13)),
      pruned(4, 13, ids_config(13, {0, 3, 4, 9, 12})), pruned_further(4, 10, ids_config(13, {0, 3, 4, 9, 12}));
  for (const Lesson* lesson : {&larger_teacher, &smaller_teacher, &pruned, &pruned_further}) {
    TableTeacher full(lesson->teacher_logits);
    for (const DistillationTerms& terms : all_terms(0)) {
      EXPECT_NEAR(lesson->loss(full, terms).item<double>(), loss_by_definition(*lesson, terms), 1e-10)
          << label_of(terms);
    }
    expect_finite_differences(*lesson, full, {.lambda = 0.4, .kind = {.divergence = Divergence::kJsd}});
  }
}

TEST(Distillation, TeachersCertainOfATokenKeepEverythingFinite) {
  Lesson lesson = simple_lesson();
  lesson.teacher_logits.zero_().select(1, 2).fill_(4000);  // all other ids have log probabilities of -4000
  lesson.hidden = (lesson.hidden.detach() * 300).to(at::kFloat).requires_grad_(true);
  lesson.weight = lesson.weight.detach().to(at::kFloat).requires_grad_(true);
  TableTeacher full(lesson.teacher_logits.to(at::kFloat));
  TopKTeacher top(lesson.teacher_logits.to(at::kFloat), lesson.label_ids(), 3, 1);
  for (const DivergenceKind& kind : kinds()) {
    for (TeacherDistributions* teacher : std::initializer_list<TeacherDistributions*>{&full, &top}) {
      lesson.hidden.mutable_grad().reset();
      const at::Tensor loss = lesson.loss(*teacher, {.lambda = 0.5, .kind = kind});
      loss.backward();
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
      EXPECT_TRUE(lesson.hidden.grad().isfinite().all().item<bool>());
    }
  }
}

// Positions are cut into several blocks, and those into rows; parts of a batch add up to the whole.
TEST(Distillation, BlocksAndMicroBatchesChangeNothing) {
  const Lesson lesson = simple_lesson(66, 270'000);
  const DistillationTerms terms{.lambda = 0, .kind = {.divergence = Divergence::kForwardKl}, .temperature = 2};
  TableTeacher teacher(lesson.teacher_logits);
  const at::Tensor whole = lesson.loss(teacher, terms);
  whole.backward();
  EXPECT_EQ(teacher.blocks, 2);
  const at::Tensor expected = lesson.hidden.grad().clone();
  const auto part = [&](int64_t begin, int64_t count) {
    const at::Tensor hidden = lesson.hidden.detach().narrow(0, begin, count).requires_grad_(true);
    const Teaching teaching{.labels = lesson.labels.narrow(0, begin, count),
                            .teacher = &teacher,
                            .positions = lesson.positions_of.narrow(0, begin, count),
                            .shared = &lesson.shared};
    const at::Tensor sum = linear_distillation(hidden, lesson.weight.detach(), teaching, terms);
    sum.backward();
    EXPECT_LT(difference(hidden.grad(), expected.narrow(0, begin, count)), 1e-9);
    return sum.item<double>();
  };
  EXPECT_NEAR(part(0, 7) + part(7, 59), whole.item<double>(), 1e-6);
}

TEST(Distillation, WithoutItsTeacherItIsCrossEntropy) {
  const Lesson lesson = simple_lesson();
  const at::Tensor expected = linear_cross_entropy(lesson.hidden, lesson.weight, lesson.labels, 0.1);
  const Teaching teaching{.labels = lesson.labels, .shared = &lesson.shared};
  EXPECT_EQ(
      linear_distillation(lesson.hidden, lesson.weight, teaching, {.lambda = 1, .label_smoothing = 0.1}).item<double>(),
      expected.item<double>());
}

}  // namespace
}  // namespace draftsmith::train
