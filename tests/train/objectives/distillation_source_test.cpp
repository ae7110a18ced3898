// The source of the kernels of distillation, run on the host: losses and slopes are those of LibTorch's operators.
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cuda_shim.h"
#include "tests/support/kernel_gate.h"
#include "tests/support/tensors.h"
#include "tests/train/objectives/distillation_fixtures.h"
#include "train/objectives/distillation_operator.h"
// The shim comes first.
#include "train/objectives/kernels/distillation.cu"

namespace draftsmith::train {
namespace {

// A step's arguments: the student's logits, labels, and the teacher.
struct Taught {
  at::Tensor logits, labels;
  TeacherBlock teacher;
  SharedRows shared;
};

// Slope and losses.
struct LossAndSlope {
  at::Tensor slope, losses;
};

template <class T>
const T* numbers_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}

template <class T>
kernel::LossTerms<T> kernel_terms(const DistillationTerms& terms) {
  return {static_cast<int>(terms.kind.divergence), static_cast<T>(terms.kind.beta), static_cast<T>(terms.lambda),
          static_cast<T>(terms.temperature), static_cast<T>(terms.label_smoothing)};
}

// Runs the kernels for student logits of type T and a teacher's of type U.
template <class T, class U>
LossAndSlope learned_by(const Taught& in, const DistillationTerms& terms, bool slope,
                        cuda_shim::Order order = cuda_shim::Order::kForward, unsigned threads = 64) {
  const LossAndSlope out{in.logits.clone(), at::full({in.logits.size(0)}, 77, in.logits.options())};
  const auto vocabulary = static_cast<int>(in.logits.size(1));
  const auto shared = static_cast<int>(in.shared.shared);
  const TeacherBlock& teacher = in.teacher;
  T* logits = out.slope.mutable_data_ptr<T>();
  T* losses = out.losses.mutable_data_ptr<T>();
  const auto* labels = numbers_of<long long>(in.labels);
  cuda_shim::run_grid(
      {static_cast<unsigned>(in.logits.size(0))}, {threads},
      [&] {
        if (teacher.logits.defined()) {
          kernel::distill_row<T, U>(logits, labels, numbers_of<U>(teacher.logits), numbers_of<long long>(in.shared.ids),
                                    losses, vocabulary, shared, static_cast<int>(teacher.logits.size(1)),
                                    kernel_terms<T>(terms), slope ? 1 : 0);
        } else {
          kernel::distill_ids_row<T>(logits, labels, numbers_of<long long>(teacher.ids),
                                     numbers_of<T>(teacher.log_probs), numbers_of<T>(teacher.tail_log_mass), losses,
                                     vocabulary, shared, static_cast<int>(teacher.ids.size(1)), kernel_terms<T>(terms),
                                     slope ? 1 : 0);
        }
      },
      order);
  return out;
}

template <class T, class U>
void expect_operators_loss(const Taught& in, const DistillationTerms& terms, double tolerance, unsigned threads = 64) {
  SCOPED_TRACE(fmt::format("{} of {} shared ids, {}", in.logits.size(1), in.shared.shared, label_of(terms)));
  at::Tensor expected = in.logits.clone();
  const double loss = distillation_losses(expected, in.labels, in.teacher, in.shared, terms, true).sum().item<double>();
  const LossAndSlope found = learned_by<T, U>(in, terms, true, cuda_shim::Order::kForward, threads);
  EXPECT_NEAR(found.losses.sum().item<double>(), loss, tolerance * std::max(1.0, std::abs(loss)));
  EXPECT_LT(difference(found.slope, expected), tolerance);
  const LossAndSlope again = learned_by<T, U>(in, terms, true, cuda_shim::Order::kBackward, threads);
  EXPECT_TRUE(again.losses.equal(found.losses));
  EXPECT_TRUE(again.slope.equal(found.slope));
  const LossAndSlope losses_alone = learned_by<T, U>(in, terms, false);
  EXPECT_TRUE(losses_alone.losses.allclose(found.losses, 1e-6, 0));
}

// Logits of a student and a teacher that agree a little, over `ids` and `teacher_ids` ids.
Taught lesson_of(int64_t ids, int64_t teacher_ids, at::ScalarType type, std::vector<int64_t> kept = {}) {
  const SharedRows shared(ids_config(ids, kept), teacher_ids);
  const int64_t rows = kept.empty() ? ids : std::ssize(kept);
  const at::Tensor common = random_tensor({3, std::max(ids, teacher_ids)}, 1, type) * 3;
  const at::Tensor own = common.narrow(1, 0, rows) + random_tensor({3, rows}, 2, type) * 2;
  const at::Tensor labels = at::arange(3, at::kLong).mul_(7).remainder_(shared.shared);
  return {own.contiguous(), labels, {.logits = common.narrow(1, 0, teacher_ids).contiguous()}, shared};
}

// The same from the teacher's `count` most likely ids and the labels; a position has unused places.
Taught ids_lesson(int64_t ids, int64_t teacher_ids, int64_t count, at::ScalarType type, double temperature) {
  Taught in = lesson_of(ids, teacher_ids, type);
  TopKTeacher teacher(in.teacher.logits, in.labels, count, temperature);
  in.teacher = teacher.block(at::arange(3, at::kLong));
  in.teacher.ids = in.teacher.ids.contiguous();
  in.teacher.ids[1][0] = -1;
  return in;
}

TEST(DistillationSource, WholeDistributionsGiveTheOperatorsLossAndSlope) {
  for (const DistillationTerms& terms : all_terms(0.1)) {
    if (terms.lambda == 1) continue;
    expect_operators_loss<double, double>(lesson_of(200, 200, at::kDouble), terms, 1e-12);
    expect_operators_loss<float, float>(lesson_of(200, 200, at::kFloat), terms, 3e-5);
  }
}

TEST(DistillationSource, ComparesTheIdsThatBothHave) {
  const DistillationTerms terms{0.3, {Divergence::kJsd, 0.3}, 1.7, 0.1};
  for (const Taught& in : {lesson_of(70, 33, at::kDouble), lesson_of(33, 70, at::kDouble), lesson_of(1, 1, at::kDouble),
                           lesson_of(90, 80, at::kDouble, {0, 3, 4, 30, 61, 79, 85})}) {
    expect_operators_loss<double, double>(in, terms, 1e-12);
  }
}

TEST(DistillationSource, ReadsATeachersHalves) {
  const DistillationTerms terms{0.3, {Divergence::kReverseKl}, 2, 0};
  Taught in = lesson_of(300, 300, at::kFloat);
  const at::Tensor logits = in.teacher.logits;
  in.teacher.logits = logits.to(at::kBFloat16);
  expect_operators_loss<float, kernel::BFloat16>(in, terms, 3e-5);
  in.teacher.logits = logits.to(at::kHalf);
  expect_operators_loss<float, kernel::Half>(in, terms, 3e-5, 512);
}

TEST(DistillationSource, IdsWithABucketGiveTheOperatorsLossAndSlope) {
  for (const DistillationTerms& terms : all_terms(0.1)) {
    if (terms.lambda == 1) continue;
    expect_operators_loss<double, double>(ids_lesson(150, 150, 5, at::kDouble, terms.temperature), terms, 1e-12);
    expect_operators_loss<float, float>(ids_lesson(150, 140, 60, at::kFloat, terms.temperature), terms, 5e-5);
  }
}

// A teacher that is certain, one without an id, and one whose rest is nothing.
TEST(DistillationSource, OddTeachersOfIdsGiveTheOperatorsSlope) {
  for (const DivergenceKind& kind : kinds()) {
    Taught in = ids_lesson(150, 150, 5, at::kDouble, 1);
    in.teacher.tail_log_mass[0] = -std::numeric_limits<double>::infinity();
    in.teacher.log_probs[0][1] = -std::numeric_limits<double>::infinity();
    in.teacher.ids[2].fill_(-1);
    expect_operators_loss<double, double>(in, {.lambda = 0.2, .kind = kind}, 1e-12);
    expect_operators_loss<double, double>(in, {.lambda = 0, .kind = kind}, 1e-12);
  }
}

TEST(DistillationSource, APositionThatIsNotFiniteGivesNaNAlone) {
  for (const bool whole : {true, false}) {
    Taught in = whole ? lesson_of(100, 100, at::kFloat) : ids_lesson(100, 100, 5, at::kFloat, 1);
    in.logits[1][60] = std::numeric_limits<float>::quiet_NaN();
    const LossAndSlope found = learned_by<float, float>(in, {.lambda = 0.5}, true);
    EXPECT_TRUE(found.losses[1].isnan().item<bool>());
    EXPECT_TRUE(found.losses[0].isfinite().item<bool>());
    EXPECT_TRUE(found.losses[2].isfinite().item<bool>());
  }
}

TEST(DistillationSource, CompilesForGpus) {
  if (const auto missing = nvrtc_missing()) GTEST_SKIP() << *missing;
  expect_good_kernels(distillation_source(), 4, 128);
}

}  // namespace
}  // namespace draftsmith::train
