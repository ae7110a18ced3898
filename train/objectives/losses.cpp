#include "train/objectives/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include "base/device_kernels.h"
#include "base/device_tensors.h"
#include "base/error.h"

namespace draftsmith {

std::span<const EmbeddedText> train_kernel_texts();  // files *.cu and *.cuh below train/, made by CMake

}  // namespace draftsmith

namespace draftsmith::train {
namespace {

constexpr unsigned kThreads = 1024;

// By LibTorch's operators, on any device.
at::Tensor cross_entropy_by_operators(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  const at::Tensor log_probs = logits.log_softmax(1);  // [C,V]
  const at::Tensor losses = cross_entropy_values(log_probs, labels, smoothing);
  if (!slope) return losses;
  at::exp_out(logits, log_probs);
  cross_entropy_gradient(logits, labels, smoothing);
  return losses;
}

at::Tensor cross_entropy_on_gpu(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  static DeviceKernels kernels(cross_entropy_source());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool takes = logits.scalar_type() == at::kFloat && logits.numel() > 0 && logits.size(0) <= kMost &&
                     logits.size(1) <= kMost - kThreads && logits.is_contiguous() && labels.is_contiguous();
  const void* kernel = takes ? kernels.find(logits.device(), "cross_entropy", logits.scalar_type()) : nullptr;
  if (kernel == nullptr) return cross_entropy_by_operators(logits, labels, smoothing, slope);
  at::Tensor losses = at::empty({logits.size(0)}, logits.options());
  kernels.launch(kernel, logits.device(), {static_cast<unsigned>(logits.size(0))}, {kThreads},
                 logits.mutable_data_ptr(), labels.const_data_ptr(), losses.mutable_data_ptr(),
                 static_cast<int>(logits.size(1)), smoothing, slope ? 1 : 0);
  return losses;
}

}  // namespace

void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing) {
  if (smoothing > 0) probabilities.sub_(smoothing / static_cast<double>(probabilities.size(1)));
  probabilities.scatter_add_(1, labels.unsqueeze(1),
                             at::full({labels.size(0), 1}, smoothing - 1, probabilities.options()));
}

KernelSource cross_entropy_source() {
  return kernel_source(train_kernel_texts(), "train/objectives/kernels/cross_entropy.cu");
}

at::Tensor cross_entropy_losses(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope) {
  static const DeviceOperator op(
      "cross_entropy(Tensor(a!) logits, Tensor labels, float smoothing, bool slope) -> Tensor",
      &cross_entropy_by_operators, &cross_entropy_on_gpu);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op(logits, labels, smoothing, slope);
}

at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing) {
  const at::Tensor nll = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1).neg();
  if (smoothing == 0) return nll;
  const at::Tensor all = log_probs.sum(1).neg() / log_probs.size(1);
  return nll * (1 - smoothing) + all * smoothing;
}

namespace {

DivergenceAt forward_kl(const at::Tensor& log_p, const at::Tensor& log_q) {
  const at::Tensor p = log_p.exp();
  return {(log_p - log_q).mul_(p).sum(1), p.neg()};
}

// d/dq = log q - log p + 1; the 1 is constant over v, and vanishes in the slope along z.
DivergenceAt reverse_kl(const at::Tensor& log_p, const at::Tensor& log_q) {
  at::Tensor terms = (log_q - log_p).mul_(log_q.exp());
  return {terms.sum(1), terms};
}

// d/dq = (1 - beta)(log q - log m) + (1 - beta)(1 - (beta p + (1 - beta) q) / m), whose second term is 0.
DivergenceAt jsd(double beta, const at::Tensor& log_p, const at::Tensor& log_q) {
  const at::Tensor log_m = at::logaddexp(log_p + std::log(beta), log_q + std::log1p(-beta));
  const at::Tensor of_p = (log_p - log_m).mul_(log_p.exp()).sum(1).mul_(beta);
  at::Tensor of_q = (log_q - log_m).mul_(log_q.exp()).mul_(1 - beta);
  return {of_p + of_q.sum(1), of_q};
}

DivergenceAt total_variation(const at::Tensor& log_p, const at::Tensor& log_q) {
  const at::Tensor q = log_q.exp();
  const at::Tensor difference = q - log_p.exp();
  return {difference.abs().sum(1).mul_(0.5), difference.sign().mul_(q).mul_(0.5)};
}

// d/dq_v = -1/alpha where q_v < p_v, else 0. In logarithms, so that an alpha below fp32's numbers stays finite.
DivergenceAt negative_log_acceptance(const at::Tensor& log_p, const at::Tensor& log_q) {
  const at::Tensor log_least = at::minimum(log_p, log_q);
  const at::Tensor log_alpha = log_least.logsumexp(1, true);  // [C,1]
  const at::Tensor grows = at::heaviside(log_p - log_q, at::full({}, 0.5, log_q.options()));
  return {log_alpha.squeeze(1).neg(), (log_least - log_alpha).exp_().mul_(grows).neg_()};
}

DivergenceAt lk(const at::Tensor& log_p, const at::Tensor& log_q) {
  const DivergenceAt kl = forward_kl(log_p, log_q);
  const DivergenceAt tv = total_variation(log_p, log_q);
  const at::Tensor weight = (tv.value - 1).mul_(kLkDecay).exp_();  // [C]
  return {at::lerp(tv.value, kl.value, weight), at::lerp(tv.slope, kl.slope, weight.unsqueeze(1))};
}

}  // namespace

std::vector<std::string> divergence_names() {
  return {"forward_kl", "reverse_kl", "jsd", "tv", "nla", "lk"};
}

DivergenceAt divergence(const std::string& name, double beta, const at::Tensor& log_p, const at::Tensor& log_q) {
  if (name == "forward_kl") return forward_kl(log_p, log_q);
  if (name == "reverse_kl") return reverse_kl(log_p, log_q);
  if (name == "jsd") return jsd(beta, log_p, log_q);
  if (name == "tv") return total_variation(log_p, log_q);
  if (name == "nla") return negative_log_acceptance(log_p, log_q);
  if (name == "lk") return lk(log_p, log_q);
  throw std::logic_error("an unknown divergence: " + name);
}

namespace {

// Stands in for log 0 in buckets and unused places. Small enough to weigh nothing, and no ratio of two such
// probabilities overflows in fp32.
constexpr double kLogOfNothing = -80;
// Lower bound of stored log probabilities, so that they are finite whatever they were rounded to.
constexpr double kLeastLog = -1e4;

// A teacher's block of top-k form in terms of the student's head.
struct AlignedBlock {
  at::Tensor rows;   // int64 [C,K]: unused places hold the row of one that is used; 0 without any
  at::Tensor used;   // bool [C,K]
  at::Tensor log_p;  // [C,K+1]: the bucket last; normalised over what is used
};

AlignedBlock aligned_top_k(const TeacherBlock& block, const SharedRows& shared, at::ScalarType type) {
  AlignedBlock aligned;
  if (shared.lacks) throw std::logic_error("a top-k teacher for a student that lacks ids of it");
  const at::Tensor& rows = block.ids;  // the student has them all, and ids rise with rows
  aligned.used = rows.ge(0);
  // Replaces unused places by a row that is used: the same value is then set there twice.
  const at::Tensor first = aligned.used.to(at::kByte).argmax(1, true);  // [C,1]
  aligned.rows = at::where(aligned.used, rows, rows.gather(1, first)).clamp_min(0);
  const at::Tensor log_p = at::where(aligned.used, block.log_probs.to(type).clamp_min(kLeastLog), kLogOfNothing);
  const at::Tensor tail = block.tail_log_mass.to(type).clamp_min(kLogOfNothing).unsqueeze(1);
  aligned.log_p = at::cat({log_p, tail}, 1).log_softmax(1);
  return aligned;
}

// The bucket's q is summed over its ids, not taken as what is left of 1, which would be rounding alone.
at::Tensor compare_buckets(const at::Tensor& log_q, const AlignedBlock& teacher, const DistillOptions& options,
                           at::Tensor* slope) {
  at::Tensor q = log_q.exp();                                                                         // [C,n]
  const at::Tensor own_log_q = log_q.gather(1, teacher.rows);                                         // [C,K]
  const at::Tensor tail = q.scatter(1, teacher.rows, 0).sum(1, true).log().clamp_min(kLogOfNothing);  // [C,1]
  const at::Tensor bucket_log_q = at::cat({at::where(teacher.used, own_log_q, kLogOfNothing), tail}, 1);
  const DivergenceAt found = divergence(options.divergence, options.beta, teacher.log_p, bucket_log_q);  // [C], [C,K+1]
  // Without a single id there is nothing to compare.
  const at::Tensor any = teacher.used.any(1, true).to(q.scalar_type());  // [C,1]
  if (slope) {
    const int64_t k = teacher.rows.size(1);
    const at::Tensor total = found.slope.sum(1, true);                    // [C,1]
    const at::Tensor of_tail = found.slope.narrow(1, k, 1) / tail.exp();  // [C,1] d value / d q of the bucket's ids
    // Sets the value instead of adding it to the slopes of the bucket's ids: those may be huge, and drown it.
    const at::Tensor own = found.slope.narrow(1, 0, k) - own_log_q.exp() * total;        // [C,K]
    const at::Tensor first = own.gather(1, teacher.used.to(at::kByte).argmax(1, true));  // [C,1]
    *slope = q.mul_(of_tail - total).scatter_(1, teacher.rows, at::where(teacher.used, own, first)).mul_(any);
  }
  return found.value.mul(any.squeeze(1));
}

// Returns log probabilities over the shared rows, at the temperature. [C,n]
at::Tensor shared_log_probs(const at::Tensor& logits, int64_t shared, double temperature) {
  const at::Tensor kept = logits.narrow(1, 0, shared);
  return (temperature == 1 ? kept : kept / temperature).log_softmax(1);
}

// D at the positions of a block [C], and its slope along z / T.
at::Tensor compare(const at::Tensor& log_q, const TeacherBlock& teacher, const SharedRows& shared,
                   const DistillOptions& options, at::Tensor* slope) {
  if (!teacher.logits.defined()) {
    return compare_buckets(log_q, aligned_top_k(teacher, shared, log_q.scalar_type()), options, slope);
  }
  const at::Tensor log_p =
      shared_log_probs(teacher.logits.to(log_q.scalar_type()), shared.shared, options.temperature);  // [C,n]
  const DivergenceAt found = divergence(options.divergence, options.beta, log_p, log_q);
  if (slope) *slope = found.slope.sub(log_q.exp().mul_(found.slope.sum(1, true)));
  return found.value;
}

}  // namespace

Fields<DistillOptions> DistillOptions::fields() {
  using T = DistillOptions;
  return Fields<T>("distillation")
      .add("lambda", &T::lambda, Range{0, 1},
           "Weight of cross entropy on the corpus's tokens: loss = lambda * CE + (1 - lambda) * T^2 * D(p, q), p the "
           "teacher's and q the student's distribution at temperature T. 1: cross entropy alone.")
      .add("divergence", &T::divergence, Choices(divergence_names()),
           "D: forward_kl is KL(p||q), reverse_kl is KL(q||p), jsd is beta * KL(p||m) + (1 - beta) * KL(q||m) with "
           "m = beta * p + (1 - beta) * q, tv is half the sum of |p - q|: what speculative sampling rejects; "
           "nla is -log(1 - tv), lk goes from forward_kl to tv as the acceptance 1 - tv grows.")
      .add("beta", &T::beta, Above{0}, Range{0, 0.999}, "Weight of the teacher in jsd.")
      .add("temperature", &T::temperature, Above{0}, "T: both logits are divided by it before D.")
      .add("label_smoothing", &T::label_smoothing, Range{0, 0.99}, "Of the cross entropy, as in cross_entropy.")
      .add(
          "normalization", &T::normalization, Choices{"tokens", "sequences"},
          "What a step's loss is the mean of. tokens: all labels count alike. sequences: each sequence's mean over its "
          "labels counts alike (DistillSpec), so that labels of short outputs count more.")
      .add("on_policy", &T::on_policy, "Learning from samples of the student.")
      .check([](const DistillOptions& options, const std::string& where, Problems& problems) {
        if (options.on_policy.share == 0 || options.lambda < 1) return;
        problems.add({.where = where + ".on_policy.share",
                      .what = "samples of the student teach by the divergence, which has no weight",
                      .expected = "0, or lambda below 1",
                      .found = fmt::format("{} with lambda = 1", options.on_policy.share)});
      });
}

SharedRows::SharedRows(const model::TransformerConfig& student, int64_t teacher_vocabulary, at::Device device) {
  const std::vector<int64_t>& kept = student.draft_vocabulary.ids;
  if (kept.empty()) {
    shared = std::min(student.vocabulary, teacher_vocabulary);
  } else {
    shared = std::lower_bound(kept.begin(), kept.end(), teacher_vocabulary) - kept.begin();
    ids = upload(at::tensor(kept, at::kLong).narrow(0, 0, shared), device);
  }
  lacks = shared < teacher_vocabulary;
}

at::Tensor distillation_losses(at::Tensor& logits, const at::Tensor& labels, const TeacherBlock& teacher,
                               const SharedRows& shared, const DistillOptions& options, bool slope) {
  at::Tensor log_probs;  // [C,V] at temperature 1
  if (options.lambda > 0) log_probs = logits.log_softmax(1);
  at::Tensor of_divergence;  // [C,n]
  at::Tensor losses = at::zeros({logits.size(0)}, logits.options());
  const double share = 1 - options.lambda;
  if (share > 0) {
    const bool same = log_probs.defined() && options.temperature == 1 && shared.shared == logits.size(1);
    const at::Tensor log_q = same ? log_probs : shared_log_probs(logits, shared.shared, options.temperature);
    const at::Tensor value = compare(log_q, teacher, shared, options, slope ? &of_divergence : nullptr);
    losses += value * (share * options.temperature * options.temperature);
  }
  if (options.lambda > 0) {
    losses += cross_entropy_values(log_probs, labels, options.label_smoothing) * options.lambda;
    if (slope) cross_entropy_gradient(at::exp_out(logits, log_probs), labels, options.label_smoothing);
  }
  if (slope) logits.mul_(options.lambda);
  if (of_divergence.defined()) {
    logits.narrow(1, 0, of_divergence.size(1)).add_(of_divergence, share * options.temperature);
  }
  return losses;
}

}  // namespace draftsmith::train
