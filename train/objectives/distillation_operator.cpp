#include "train/objectives/distillation_operator.h"

#include <limits>
#include <stdexcept>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "base/device_kernels.h"
#include "train/kernel_texts.h"

namespace draftsmith::train {
namespace {

constexpr unsigned kThreadsOfPosition = 512;

using Optional = std::optional<at::Tensor>;

// Arguments of the operator: a teacher's logits, or its ids with their log probabilities and the rest's.
struct DistillArguments {
  at::Tensor& logits;
  const at::Tensor& labels;
  TeacherBlock teacher;
  SharedRows shared;
  DistillationTerms terms;
  bool slope;
};

TeacherBlock block_of(const Optional& logits, const Optional& ids, const Optional& log_probs, const Optional& tail) {
  const at::Tensor none;
  return {logits.value_or(none), ids.value_or(none), log_probs.value_or(none), tail.value_or(none)};
}

Optional defined_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? Optional(tensor) : std::nullopt;
}

DeviceKernels& distillation_kernels() {
  static DeviceKernels instance(distillation_source());
  return instance;
}

const void* find_kernel(const DistillArguments& in) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const at::Tensor& logits = in.logits;
  const bool takes = logits.scalar_type() == at::kFloat && logits.numel() > 0 && logits.is_contiguous() &&
                     logits.size(0) <= kMost && logits.size(1) <= kMost - kThreadsOfPosition;
  // The others are no sums over ids.
  const bool adds = in.terms.kind.divergence <= Divergence::kTotalVariation;
  if (!takes || !adds) return nullptr;
  const TeacherBlock& teacher = in.teacher;
  if (!teacher.logits.defined()) {
    if (teacher.ids.size(1) > static_cast<int64_t>(kThreadsOfPosition)) return nullptr;
    return distillation_kernels().find(logits.device(), "distill_ids", at::kFloat);
  }
  const auto type = teacher.logits.scalar_type();
  if (type == at::kDouble || teacher.logits.size(1) > kMost) return nullptr;
  return distillation_kernels().find(logits.device(), "distill", type);
}

// Launches a kernel, whose last arguments are the same for both forms of a teacher.
template <class... Arguments>
void launch_kernel(const void* kernel, const DistillArguments& in, Arguments... arguments) {
  const DistillationTerms& terms = in.terms;
  distillation_kernels().launch(kernel, in.logits.device(), {static_cast<unsigned>(in.logits.size(0))},
                                {kThreadsOfPosition}, static_cast<float*>(in.logits.mutable_data_ptr()), arguments...,
                                static_cast<int>(terms.kind.divergence), static_cast<float>(terms.kind.beta),
                                static_cast<float>(terms.lambda), static_cast<float>(terms.temperature),
                                static_cast<float>(terms.label_smoothing), in.slope ? 1 : 0);
}

at::Tensor distill_by_kernel(const void* kernel, const DistillArguments& in) {
  const at::Tensor labels = in.labels.contiguous();
  at::Tensor losses = at::empty({in.logits.size(0)}, in.logits.options());
  const auto vocabulary = static_cast<int>(in.logits.size(1));
  const auto shared = static_cast<int>(in.shared.shared);
  if (in.teacher.logits.defined()) {
    const at::Tensor teacher = in.teacher.logits.contiguous();
    const void* ids = in.shared.ids.defined() ? in.shared.ids.const_data_ptr() : nullptr;
    launch_kernel(kernel, in, labels.const_data_ptr(), teacher.const_data_ptr(), ids, losses.mutable_data_ptr(),
                  vocabulary, shared, static_cast<int>(teacher.size(1)));
    return losses;
  }
  const at::Tensor ids = in.teacher.ids.contiguous();
  const at::Tensor log_probs = in.teacher.log_probs.to(at::kFloat).contiguous();
  const at::Tensor tail = in.teacher.tail_log_mass.to(at::kFloat).contiguous();
  launch_kernel(kernel, in, labels.const_data_ptr(), ids.const_data_ptr(), log_probs.const_data_ptr(),
                tail.const_data_ptr(), losses.mutable_data_ptr(), vocabulary, shared, static_cast<int>(ids.size(1)));
  return losses;
}

at::Tensor distill_by_operators(at::Tensor& logits, const at::Tensor& labels, const Optional& teacher,
                                const Optional& ids, const Optional& log_probs, const Optional& tail,
                                const Optional& rows, int64_t shared, int64_t divergence, double beta, double lambda,
                                double temperature, double smoothing, bool slope) {
  const DistillationTerms terms{lambda, {static_cast<Divergence>(divergence), beta}, temperature, smoothing};
  return distillation_losses(logits, labels, block_of(teacher, ids, log_probs, tail),
                             {shared, rows.value_or(at::Tensor())}, terms, slope);
}

at::Tensor distill_on_gpu(at::Tensor& logits, const at::Tensor& labels, const Optional& teacher, const Optional& ids,
                          const Optional& log_probs, const Optional& tail, const Optional& rows, int64_t shared,
                          int64_t divergence, double beta, double lambda, double temperature, double smoothing,
                          bool slope) {
  const DistillArguments in{logits,
                            labels,
                            block_of(teacher, ids, log_probs, tail),
                            {shared, rows.value_or(at::Tensor())},
                            {lambda, {static_cast<Divergence>(divergence), beta}, temperature, smoothing},
                            slope};
  if (const void* kernel = find_kernel(in)) return distill_by_kernel(kernel, in);
  return distillation_losses(logits, labels, in.teacher, in.shared, in.terms, slope);
}

TORCH_LIBRARY_FRAGMENT(draftsmith, library) {
  library.def(
      "distill(Tensor(a!) logits, Tensor labels, Tensor? teacher, Tensor? ids, Tensor? log_probs, Tensor? tail, "
      "Tensor? rows, int shared, int divergence, float beta, float lambda, float temperature, float smoothing, "
      "bool slope) -> Tensor");
}

TORCH_LIBRARY_IMPL(draftsmith, CPU, library) {
  library.impl("distill", &distill_by_operators);
}

TORCH_LIBRARY_IMPL(draftsmith, CUDA, library) {
  library.impl("distill", &distill_on_gpu);
}

}  // namespace

KernelSource distillation_source() {
  return kernel_source(train_kernel_texts(), "train/objectives/kernels/distillation.cu");
}

at::Tensor distillation_by_operator(at::Tensor& logits, const at::Tensor& labels, const TeacherBlock& teacher,
                                    const SharedRows& shared, const DistillationTerms& terms, bool slope) {
  if (!teacher.logits.defined() && shared.lacks) {
    throw std::logic_error("a top-k teacher for a student that lacks ids of it");
  }
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("draftsmith::distill", "").typed<decltype(distill_by_operators)>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return handle.call(logits, labels, defined_or_none(teacher.logits), defined_or_none(teacher.ids),
                     defined_or_none(teacher.log_probs), defined_or_none(teacher.tail_log_mass),
                     defined_or_none(shared.ids), shared.shared, static_cast<int64_t>(terms.kind.divergence),
                     terms.kind.beta, terms.lambda, terms.temperature, terms.label_smoothing, slope);
}

}  // namespace draftsmith::train
