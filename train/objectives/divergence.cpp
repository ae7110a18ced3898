#include "train/objectives/divergence.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/device_tensors.h"
#include "train/objectives/cross_entropy.h"

namespace draftsmith::train {
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

// A teacher's block in terms of the student's head. Full: logits [C,n] of the n shared rows. Top-k: rows.
struct AlignedBlock {
  at::Tensor logits;  // [C,n]; undefined: top-k form
  at::Tensor rows;    // int64 [C,K]: unused places hold the row of one that is used; 0 without any
  at::Tensor used;    // bool [C,K]
  at::Tensor log_p;   // [C,K+1]: the bucket last; normalised over what is used
};

at::Tensor shared_logits(const at::Tensor& logits, const SharedRows& shared, double temperature) {
  const at::Tensor kept =
      shared.ids.defined() ? logits.index_select(1, shared.ids) : logits.narrow(1, 0, shared.shared);
  return temperature == 1 ? kept : kept / temperature;
}

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
    // Sets the value instead of adding it to the slopes of the bucket's ids: those may be huge, and only rounding would
    // remain.
    const at::Tensor own = found.slope.narrow(1, 0, k) - own_log_q.exp() * total;        // [C,K]
    const at::Tensor first = own.gather(1, teacher.used.to(at::kByte).argmax(1, true));  // [C,1]
    *slope = q.mul_(of_tail - total).scatter_(1, teacher.rows, at::where(teacher.used, own, first)).mul_(any);
  }
  return found.value.mul(any.squeeze(1));
}

// D at the positions of a block [C], and its slope along z / T.
at::Tensor compare(const at::Tensor& log_q, const TeacherBlock& teacher, const SharedRows& shared,
                   const DistillOptions& options, at::Tensor* slope) {
  if (!teacher.logits.defined()) {
    return compare_buckets(log_q, aligned_top_k(teacher, shared, log_q.scalar_type()), options, slope);
  }
  const at::Tensor logits = teacher.logits.to(log_q.scalar_type());
  const at::Tensor log_p = shared_logits(logits, shared, options.temperature).log_softmax(1);  // [C,n]
  const DivergenceAt found = divergence(options.divergence, options.beta, log_p, log_q);
  if (slope) *slope = found.slope.sub(log_q.exp().mul_(found.slope.sum(1, true)));
  return found.value;
}

// Returns the student's log probabilities over the shared rows, at the temperature. [C,n]
at::Tensor shared_log_probs(const at::Tensor& logits, const at::Tensor& log_probs, int64_t shared, double temperature) {
  if (temperature == 1 && shared == logits.size(1) && log_probs.defined()) return log_probs;
  const at::Tensor own = logits.narrow(1, 0, shared);
  return (temperature == 1 ? own : own / temperature).log_softmax(1);
}

}  // namespace

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
    const at::Tensor log_q = shared_log_probs(logits, log_probs, shared.shared, options.temperature);
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
