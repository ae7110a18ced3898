// Divergences between a teacher's distribution p and a student's q, with their slopes (methods.md §2; DistillSpec,
// Zhou et al. 2024, for the family; GKD, Agarwal et al. 2024, for JSD(beta); LK losses, arXiv 2602.23881, for those
// that aim at the acceptance alpha = sum min(p, q) = 1 - TV itself).
#pragma once

#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith::train {

enum class Divergence {
  kForwardKl,       // KL(p || q) = sum p (log p - log q)
  kReverseKl,       // KL(q || p) = sum q (log q - log p)
  kJsd,             // beta KL(p || m) + (1 - beta) KL(q || m), m = beta p + (1 - beta) q
  kTotalVariation,  // TV = 1/2 sum |p - q|
  // -log alpha: total variation's direction, at a length that does not vanish where p and q hardly overlap.
  kNegativeLogAcceptance,
  // w KL(p || q) + (1 - w) TV with w = exp(-kLkDecay alpha) taken as a constant: KL while drafts are rejected, TV
  // later.
  kLk,
};

inline constexpr double kLkDecay = 3;

struct DivergenceKind {
  Divergence divergence = Divergence::kForwardKl;
  double beta = 0.5;  // of JSD, in (0,1)
};

// "forward_kl", "reverse_kl", "jsd", "tv", "nla", "lk".
std::vector<std::string> divergence_names();
// Errors: UserError for another name.
Divergence parse_divergence(const std::string& name);

struct DivergenceAt {
  at::Tensor value;  // [C]
  // d value / d log q_v, as if the q_v were free: q_v times d value / d q_v. With q = softmax(z), value's slope along
  // z_v is slope_v - q_v sum(slope). At a kink (p_v = q_v, where alpha or total variation is read) it is the mean of
  // its sides.
  at::Tensor slope;  // [C,V]
};

// Returns the divergence of log p and log q [C,V], normalised over V and finite.
DivergenceAt divergence(const DivergenceKind& kind, const at::Tensor& log_p, const at::Tensor& log_q);

}  // namespace draftsmith::train
