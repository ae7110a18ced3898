// Divergences between a teacher's distribution p and a student's q, with their slopes (methods.md §2; DistillSpec,
// Zhou et al. 2024, for the family; GKD, Agarwal et al. 2024, for JSD(beta)).
#pragma once

#include <string>
#include <vector>

#include "base/aten.h"

namespace draftsmith::train {

enum class Divergence {
  kForwardKl,       // KL(p || q) = sum p (log p - log q)
  kReverseKl,       // KL(q || p) = sum q (log q - log p)
  kJsd,             // beta KL(p || m) + (1 - beta) KL(q || m), m = beta p + (1 - beta) q
  kTotalVariation,  // 1/2 sum |p - q|
};

struct DivergenceKind {
  Divergence divergence = Divergence::kForwardKl;
  double beta = 0.5;  // of JSD, in (0,1)
};

// "forward_kl", "reverse_kl", "jsd", "tv".
std::vector<std::string> divergence_names();
// Errors: std::logic_error for another name.
Divergence parse_divergence(const std::string& name);

struct DivergenceAt {
  at::Tensor value;  // [C]
  // d value / d log q_v, as if the q_v were free: q_v times d value / d q_v. With q = softmax(z), value's slope along
  // z_v is slope_v - q_v sum(slope). At a kink of total variation (p_v = q_v) it is 0, which lies between its sides.
  at::Tensor slope;  // [C,V]
};

// Returns the divergence of log p and log q [C,V], normalised over V and finite.
DivergenceAt divergence(const DivergenceKind& kind, const at::Tensor& log_p, const at::Tensor& log_q);

}  // namespace draftsmith::train
