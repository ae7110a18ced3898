// Distillation from whole distributions, and from k ids, the label and one bucket for the rest: values against
// definitions written out with plain loops, gradients against finite differences and fp64.
#include <cmath>
#include <initializer_list>

#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/train/objectives/fixtures.h"

namespace draftsmith::train {
namespace {

TEST(Distillation, EqualsItsDefinition) {
  const Lesson lesson = simple_lesson();
  TableTeacher teacher(lesson.teacher_logits);
  for (const double smoothing : {0.0, 0.2}) {
    for (const DistillOptions& options : all_options(smoothing)) {
      EXPECT_NEAR(lesson.loss(teacher, options).item<double>(), loss_by_definition(lesson, options), 1e-10)
          << label_of(options);
    }
  }
}

TEST(Distillation, GradientEqualsFiniteDifferences) {
  const Lesson lesson = simple_lesson(3, 7);
  TableTeacher teacher(lesson.teacher_logits);
  for (const DistillOptions& options : all_options(0.1)) expect_finite_differences(lesson, teacher, options);
}

// Padded vocabularies differ between sizes of a family, both ways; ids that one lacks are left out of the divergence.
TEST(Distillation, ComparesOverTheIdsThatBothHave) {
  const Lesson larger_teacher(4, 13, ids_config(9)), smaller_teacher(4, 9, ids_config(13)),
      pruned(4, 13, ids_config(13, {0, 3, 4, 9, 12})), pruned_further(4, 10, ids_config(13, {0, 3, 4, 9, 12}));
  for (const Lesson* lesson : {&larger_teacher, &smaller_teacher, &pruned, &pruned_further}) {
    TableTeacher full(lesson->teacher_logits);
    for (const DistillOptions& options : all_options(0)) {
      EXPECT_NEAR(lesson->loss(full, options).item<double>(), loss_by_definition(*lesson, options), 1e-10)
          << label_of(options);
    }
    expect_finite_differences(*lesson, full, {.lambda = 0.4, .divergence = "jsd"});
  }
}

// Positions are cut into several blocks, and those into rows; parts of a batch add up to the whole.
TEST(Distillation, BlocksAndMicroBatchesChangeNothing) {
  const Lesson lesson = simple_lesson(66, 270'000);
  const DistillOptions options{.lambda = 0, .temperature = 2};
  TableTeacher teacher(lesson.teacher_logits);
  const at::Tensor whole = lesson.loss(teacher, options);
  whole.backward();
  EXPECT_EQ(teacher.blocks, 2);
  const at::Tensor expected = lesson.hidden.grad().clone();
  const auto part = [&](int64_t begin, int64_t count) {
    const at::Tensor hidden = lesson.hidden.detach().narrow(0, begin, count).requires_grad_(true);
    const Targets targets{
        .labels = {lesson.labels.narrow(0, begin, count), lesson.positions_of.narrow(0, begin, count)}};
    const at::Tensor sum =
        linear_distillation(hidden, lesson.weight.detach(), targets, teacher, lesson.shared, options);
    sum.backward();
    EXPECT_LT(difference(hidden.grad(), expected.narrow(0, begin, count)), 1e-9);
    return sum.item<double>();
  };
  EXPECT_NEAR(part(0, 7) + part(7, 59), whole.item<double>(), 1e-6);
}

TEST(DistillationBuckets, GradientFromTopKEqualsFiniteDifferences) {
  const Lesson lesson = simple_lesson(3, 7);
  for (const DistillOptions& options : all_options(0)) {
    GivenTeacher teacher = top_k_teacher(lesson.teacher_logits, lesson.label_ids(), 3, options.temperature);
    expect_finite_differences(lesson, teacher, options);
  }
}

// The gradient of a student with these logits [1,V]: its head is the unit matrix.
at::Tensor gradient_of(const at::Tensor& logits, const TeacherBlock& block, const DistillOptions& options) {
  const int64_t vocabulary = logits.size(1);
  const SharedRows shared(ids_config(vocabulary), vocabulary);
  const at::Tensor hidden = logits.clone().requires_grad_(true);
  GivenTeacher teacher(block);
  const Targets targets{.labels = {at::zeros({1}, at::kLong), at::zeros({1}, at::kLong)}};
  linear_distillation(hidden, at::eye(vocabulary, logits.options()), targets, teacher, shared, options).backward();
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
  for (const DistillOptions& options : kinds()) {
    const at::Tensor expected = gradient_of(logits, block, options);
    const at::Tensor found = gradient_of(logits.to(at::kFloat), block, options);
    EXPECT_LT(difference(found, expected), 1e-6) << label_of(options);
    if (options.divergence != "forward_kl") continue;
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
  for (const DistillOptions& options : kinds()) {
    const at::Tensor expected = gradient_of(logits, block({1, 3}, {a, b}, rest), options);
    for (const TeacherBlock& other : {block({-1, 1, 3}, {anything, a, b}, rest), block({1, -1, 3}, {a, 0, b}, rest),
                                      block({1, 3, -1, -1}, {a, b, anything, -3}, rest)}) {
      EXPECT_LT(difference(gradient_of(logits, other, options), expected), 1e-12) << label_of(options);
    }
    EXPECT_GT(largest(expected), 1e-3);
    const at::Tensor none = gradient_of(logits, block({-1, -1}, {a, b}, rest), options);
    EXPECT_EQ(largest(none), 0) << label_of(options);
  }
}

TEST(DistillationBuckets, StudentsThatLackIdsOfTheTeacherAreNoneOfTheirs) {
  const Lesson smaller(4, 9, ids_config(13));  // the teacher's ids are among the student's
  GivenTeacher some = top_k_teacher(smaller.teacher_logits, smaller.label_ids(), 3, 1);
  for (const DistillOptions& options : all_options(0)) {
    GivenTeacher at_temperature = top_k_teacher(smaller.teacher_logits, smaller.label_ids(), 9, options.temperature);
    EXPECT_NEAR(smaller.loss(at_temperature, options).item<double>(), loss_by_definition(smaller, options), 1e-10);
  }
  expect_finite_differences(smaller, some, {.lambda = 0.4, .divergence = "reverse_kl"});
  const Lesson larger(4, 13, ids_config(9)), pruned(4, 13, ids_config(13, {0, 3, 4, 9, 12}));
  for (const Lesson* lesson : {&larger, &pruned}) {
    GivenTeacher teacher = top_k_teacher(lesson->teacher_logits, lesson->label_ids(), 3, 1);
    EXPECT_TRUE(lesson->shared.lacks);
    EXPECT_THROW(lesson->loss(teacher, {.lambda = 0}), std::logic_error);
  }
}

// The acceptance as a constant: no finite difference shows the slope.
TEST(Distillation, LkWeighsKlByTheAcceptanceAsAConstant) {
  const at::Tensor log_p = random_tensor({6, 9}, 1, at::kDouble).mul(2).log_softmax(1);
  const at::Tensor log_q = random_tensor({6, 9}, 2, at::kDouble).mul(2).log_softmax(1);
  const auto by = [&](const char* name) { return divergence(name, 0.5, log_p, log_q); };
  const DivergenceAt lk = by("lk"), kl = by("forward_kl"), tv = by("tv");
  const at::Tensor weight = at::minimum(log_p.exp(), log_q.exp()).sum(1).mul(-kLkDecay).exp();
  EXPECT_LT(difference(lk.value, weight * kl.value + (1 - weight) * tv.value), 1e-12);
  const at::Tensor column = weight.unsqueeze(1);
  EXPECT_LT(difference(lk.slope, column * kl.slope + (1 - column) * tv.slope), 1e-12);
}

TEST(Distillation, StaysFiniteWhereTheTeacherIsCertainAndNothingOverlaps) {
  Lesson lesson = simple_lesson();
  lesson.teacher_logits.zero_().select(1, 2).fill_(4000);  // all other ids have log probabilities of -4000
  lesson.hidden = (lesson.hidden.detach() * 300).to(at::kFloat).requires_grad_(true);
  lesson.weight = lesson.weight.detach().to(at::kFloat).requires_grad_(true);
  TableTeacher full(lesson.teacher_logits.to(at::kFloat));
  GivenTeacher top = top_k_teacher(lesson.teacher_logits.to(at::kFloat), lesson.label_ids(), 3, 1);
  std::vector<DistillOptions> all = kinds();
  all.push_back({.lambda = 0, .divergence = "lk"});
  for (const DistillOptions& options : all) {
    for (TeacherDistributions* teacher : std::initializer_list<TeacherDistributions*>{&full, &top}) {
      lesson.hidden.mutable_grad().reset();
      const at::Tensor loss = lesson.loss(*teacher, options);
      loss.backward();
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
      EXPECT_TRUE(lesson.hidden.grad().isfinite().all().item<bool>());
      if (options.divergence != "nla" && options.divergence != "lk") continue;
      EXPECT_GT(largest(lesson.hidden.grad()), 1e-3);  // where total variation alone has nothing to go by
    }
  }
}

}  // namespace
}  // namespace draftsmith::train
