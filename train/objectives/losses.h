// Losses of logits at a few positions, with their slopes: cross entropy, divergences between a teacher's distribution p
// and a student's q, and the sum of both that logit distillation is (methods.md §2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "base/options.h"
#include "model/transformer/transformer_config.h"
#include "train/teacher/student_samples.h"
#include "train/teacher/teacher_source.h"

namespace draftsmith::train {

// ---- Cross entropy of labels y, with label smoothing e as in Szegedy et al. 2016 (section 7)
//   (1-e) -log q(y) + e/V sum_v -log q(v); its slope along the logits is q - e/V, less 1-e at y

// Returns the losses [C] at a few positions with known log probabilities [C,V].
at::Tensor cross_entropy_values(const at::Tensor& log_probs, const at::Tensor& labels, double smoothing);

// Replaces probabilities [C,V] by the slope, by LibTorch's operators.
void cross_entropy_gradient(at::Tensor& probabilities, const at::Tensor& labels, double smoothing);

// The operator draftsmith::cross_entropy, below autograd: one launch on a GPU, by a kernel of our own
// (train/objectives/kernels/cross_entropy.cu), elsewhere the two functions above.

// Returns the source of the operator's kernels.
KernelSource cross_entropy_source();

// Returns the losses [C] of logits [C,V], fp32 or fp64 and contiguous, and labels int64 [C]. With `slope`, logits
// become the slope along them.
at::Tensor cross_entropy_losses(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool slope);

// ---- Divergences
// DistillSpec, Zhou et al. 2024, for the family; GKD, Agarwal et al. 2024, for JSD(beta); LK losses, arXiv 2602.23881,
// for those that aim at the acceptance alpha = sum min(p, q) = 1 - TV.
//
//   forward_kl  KL(p || q) = sum p (log p - log q)
//   reverse_kl  KL(q || p) = sum q (log q - log p)
//   jsd         beta KL(p || m) + (1 - beta) KL(q || m), m = beta p + (1 - beta) q
//   tv          TV = 1/2 sum |p - q|
//   nla         -log alpha: tv's direction, at a length that does not vanish where p and q hardly overlap
//   lk          w KL(p || q) + (1 - w) TV with w = exp(-kLkDecay alpha) taken as a constant: KL while drafts are
//               rejected, TV later

inline constexpr double kLkDecay = 3;

// Returns the names above.
std::vector<std::string> divergence_names();

struct DivergenceAt {
  at::Tensor value;  // [C]
  // d value / d log q_v, as if the q_v were free: q_v times d value / d q_v. With q = softmax(z), value's slope along
  // z_v is slope_v - q_v sum(slope). At a kink (p_v = q_v, where alpha or total variation is read) it is the mean of
  // its sides.
  at::Tensor slope;  // [C,V]
};

// Returns the named divergence of log p and log q [C,V], normalised over V and finite. `beta` in (0,1), of jsd.
DivergenceAt divergence(const std::string& name, double beta, const at::Tensor& log_p, const at::Tensor& log_q);

// ---- Losses of logit distillation, by LibTorch's operators
//   lambda CE(labels, q_1) + (1 - lambda) T^2 D(p_T, q_T),   q_T = softmax(z / T), p_T the teacher's likewise.
//
// D compares the ids that teacher and student both have; both distributions are normalised over those. So ids that pad
// the larger vocabulary never make D infinite, and a student with a pruned vocabulary learns the teacher's
// probabilities of the ids that it can give. CE is over all the student's ids.
//
// In top-k form D compares coarser distributions over k ids, the label, and one bucket for all other ids: never more
// than the full form. The student must have all the teacher's ids: missing ones could not be told from the bucket.

struct DistillOptions {
  double lambda = 0.5;
  std::string divergence = "forward_kl";
  double beta = 0.5;
  double temperature = 1.0;
  double label_smoothing = 0.0;
  std::string normalization = "tokens";
  OnPolicyOptions on_policy = {};
  static Fields<DistillOptions> fields();
};

// The ids that teacher and student both have, as rows of the student's head. Ids rise with rows, so these are the first
// rows.
struct SharedRows {
  SharedRows(const model::TransformerConfig& student, int64_t teacher_vocabulary, at::Device device = at::kCPU);

  int64_t shared = 0;   // rows
  at::Tensor ids = {};  // int64 [shared]: ids of these rows; undefined: their own numbers
  bool lacks = false;   // the teacher has ids that the student does not have
};

// Returns the losses [C] of positions with the student's logits [C,V], fp32 or fp64, and labels int64 [C]. A full
// teacher block is of `shared.ids`, or of all ids if these are undefined. The teacher is not read if lambda is 1. With
// `slope`, logits become the slope along them; else they may change. Errors: std::logic_error for a top-k teacher if
// the student lacks ids.
at::Tensor distillation_losses(at::Tensor& logits, const at::Tensor& labels, const TeacherBlock& teacher,
                               const SharedRows& shared, const DistillOptions& options, bool slope);

}  // namespace draftsmith::train
