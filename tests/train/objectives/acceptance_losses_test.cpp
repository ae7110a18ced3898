// Divergences that aim at the acceptance itself: nla and lk.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/train/objectives/distillation_fixtures.h"

namespace draftsmith::train {
namespace {

constexpr DivergenceKind kNla{.divergence = Divergence::kNegativeLogAcceptance};
constexpr DivergenceKind kLk{.divergence = Divergence::kLk};

struct Distributions {
  at::Tensor log_p = random_tensor({6, 9}, 1, at::kDouble).mul(2).log_softmax(1);
  at::Tensor log_q = random_tensor({6, 9}, 2, at::kDouble).mul(2).log_softmax(1);

  DivergenceAt by(Divergence divergence_) const { return divergence({.divergence = divergence_}, log_p, log_q); }
  at::Tensor alpha() const { return at::minimum(log_p.exp(), log_q.exp()).sum(1); }
};

TEST(AcceptanceLosses, NlaIsTheNegativeLogarithmOfAlpha) {
  const Distributions given;
  EXPECT_LT(difference(given.by(Divergence::kNegativeLogAcceptance).value, given.alpha().log().neg()), 1e-12);
}

TEST(AcceptanceLosses, NlaGoesTheWayOfTotalVariationFartherWhereTheyHardlyOverlap) {
  const Distributions given;
  const at::Tensor q = given.log_q.exp();
  const auto along_logits = [&](Divergence divergence_) {
    const at::Tensor slope = given.by(divergence_).slope;
    return slope - q * slope.sum(1, true);
  };
  EXPECT_LT(difference(along_logits(Divergence::kNegativeLogAcceptance) * given.alpha().unsqueeze(1),
                       along_logits(Divergence::kTotalVariation)),
            1e-12);
}

TEST(AcceptanceLosses, LkWeighsKlByTheAcceptanceAsAConstant) {
  const Distributions given;
  const DivergenceAt lk = given.by(Divergence::kLk);
  const DivergenceAt kl = given.by(Divergence::kForwardKl);
  const DivergenceAt tv = given.by(Divergence::kTotalVariation);
  const at::Tensor weight = given.alpha().mul(-kLkDecay).exp();
  EXPECT_LT(difference(lk.value, weight * kl.value + (1 - weight) * tv.value), 1e-12);
  const at::Tensor column = weight.unsqueeze(1);
  EXPECT_LT(difference(lk.slope, column * kl.slope + (1 - column) * tv.slope), 1e-12);
}

TEST(AcceptanceLosses, NlaGradientsEqualFiniteDifferencesOverAllIdsAndBuckets) {
  const Lesson lesson = simple_lesson(3, 7);
  for (const double temperature : {1.0, 2.5}) {
    const DistillationTerms terms{.lambda = 0.3, .kind = kNla, .temperature = temperature};
    TableTeacher full(lesson.teacher_logits);
    expect_finite_differences(lesson, full, terms);
    TopKTeacher top(lesson.teacher_logits, lesson.label_ids(), 3, temperature);
    expect_finite_differences(lesson, top, terms);
  }
}

TEST(AcceptanceLosses, StayFiniteWhereNothingOverlaps) {
  Lesson lesson = simple_lesson();
  lesson.teacher_logits.zero_().select(1, 2).fill_(4000);  // all other ids have log probabilities of -4000
  lesson.hidden = (lesson.hidden.detach() * 300).to(at::kFloat).requires_grad_(true);
  lesson.weight = lesson.weight.detach().to(at::kFloat).requires_grad_(true);
  TableTeacher full(lesson.teacher_logits.to(at::kFloat));
  TopKTeacher top(lesson.teacher_logits.to(at::kFloat), lesson.label_ids(), 3, 1);
  for (const DivergenceKind& kind : {kNla, kLk}) {
    for (TeacherDistributions* teacher : std::initializer_list<TeacherDistributions*>{&full, &top}) {
      lesson.hidden.mutable_grad().reset();
      const at::Tensor loss = lesson.loss(*teacher, {.lambda = 0, .kind = kind});
      loss.backward();
      EXPECT_TRUE(std::isfinite(loss.item<double>()));
      EXPECT_TRUE(lesson.hidden.grad().isfinite().all().item<bool>());
      EXPECT_GT(largest(lesson.hidden.grad()), 1e-3);  // where total variation alone has nothing to go by
    }
  }
}

}  // namespace
}  // namespace draftsmith::train
