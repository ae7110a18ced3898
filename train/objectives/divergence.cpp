#include "train/objectives/divergence.h"

#include <cmath>
#include <stdexcept>

#include "base/registry.h"

namespace draftsmith::train {

namespace {

const NamedValues<Divergence>& divergences() {
  static const NamedValues<Divergence> kDivergences("divergence", {{"forward_kl", Divergence::kForwardKl},
                                                                   {"reverse_kl", Divergence::kReverseKl},
                                                                   {"jsd", Divergence::kJsd},
                                                                   {"tv", Divergence::kTotalVariation},
                                                                   {"nla", Divergence::kNegativeLogAcceptance},
                                                                   {"lk", Divergence::kLk}});
  return kDivergences;
}

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
  return divergences().names();
}

Divergence parse_divergence(const std::string& name) {
  return divergences().at(name);
}

DivergenceAt divergence(const DivergenceKind& kind, const at::Tensor& log_p, const at::Tensor& log_q) {
  switch (kind.divergence) {
    case Divergence::kForwardKl:
      return forward_kl(log_p, log_q);
    case Divergence::kReverseKl:
      return reverse_kl(log_p, log_q);
    case Divergence::kJsd:
      return jsd(kind.beta, log_p, log_q);
    case Divergence::kTotalVariation:
      return total_variation(log_p, log_q);
    case Divergence::kNegativeLogAcceptance:
      return negative_log_acceptance(log_p, log_q);
    case Divergence::kLk:
      return lk(log_p, log_q);
  }
  throw std::logic_error("an unknown divergence");
}

}  // namespace draftsmith::train
