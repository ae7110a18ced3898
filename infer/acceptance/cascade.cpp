#include "infer/acceptance/cascade.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/device_kernels.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

namespace {

// The rule at one position, of p and q [V].
template <class T>
struct Position {
  const std::vector<T>& p;
  const T* q;

  int64_t vocabulary() const { return std::ssize(p); }
  double largest_p() const { return static_cast<double>(*std::max_element(p.begin(), p.end())); }
  double largest_q() const { return static_cast<double>(*std::max_element(q, q + vocabulary())); }

  // Returns whether the drafter's distribution is trusted as a whole.
  bool trusts(Deferral deferral, double alpha) const {
    if (deferral == Deferral::kChow) return largest_q() >= 1 - alpha;
    const double cost = deferral == Deferral::kDiff ? alpha : alpha * (1 - row_overlap(p.data(), q, vocabulary()));
    return largest_q() >= largest_p() - cost;
  }

  // Returns the least p of a trusted token, of the deferral `token`.
  double least_trusted(double alpha) const { return (1 - alpha) * largest_p(); }

  // Returns pi of the deferral `token`.
  std::vector<T> mixture(double alpha) const {
    const double least = least_trusted(alpha);
    double deferred = 0;  // q's mass of tokens that are not trusted
    for (size_t x = 0; x < p.size(); ++x) deferred += static_cast<double>(p[x]) < least ? static_cast<double>(q[x]) : 0;
    std::vector<T> pi(p.size());
    for (size_t x = 0; x < p.size(); ++x) {
      pi[x] = static_cast<T>(static_cast<double>(p[x]) * deferred);
      if (static_cast<double>(p[x]) >= least) pi[x] += q[x];
    }
    return pi;
  }
};

}  // namespace

const NamedValues<Deferral>& deferrals() {
  static const NamedValues<Deferral> kDeferrals(
      "deferral",
      {{"chow", Deferral::kChow}, {"diff", Deferral::kDiff}, {"opt", Deferral::kOpt}, {"token", Deferral::kToken}});
  return kDeferrals;
}

template <class T>
RowJudgement CascadeAcceptance::judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const {
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(vocabulary));  // of position j; then pi
  int64_t j = 0;
  for (;; ++j) {
    row_warp(in.logits(b, j), vocabulary, in.whole().warping, p.data());
    if (j == in.drafted(b) || std::isnan(p.front())) break;  // all are NaN, or none
    const T* q = in.drafter(b, j);
    if (overlaps != nullptr) overlaps[j] = row_overlap(p.data(), q, vocabulary);
    const bool by_token = deferral_ == Deferral::kToken;
    if (!by_token && Position<T>{p, q}.trusts(deferral_, alpha_)) continue;
    if (by_token) p = Position<T>{p, q}.mixture(alpha_);
    const auto token = static_cast<size_t>(in.token(b, j));
    const double chance = row.random.uniform(Draw::kAccept, row.emitted() + j);
    if (chance * static_cast<double>(q[token]) < static_cast<double>(p[token])) continue;
    if (row_residual(p.data(), q, vocabulary) <= 0) row_warp(in.logits(b, j), vocabulary, in.whole().warping, p.data());
    break;
  }
  return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
}

template <class T>
RowJudgement CascadeAcceptance::judge_greedy_row(const RowVerification<T>& in, int64_t b, double* overlaps) const {
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(vocabulary));  // of position j, at temperature 1
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    const int64_t own = row_argmax(logits, vocabulary);
    if (j == in.drafted(b) || own == kNoToken) return {j, own};
    const int64_t token = in.token(b, j);
    if (overlaps != nullptr) overlaps[j] = own == token ? 1 : 0;
    if (own == token) continue;
    row_warp(logits, vocabulary, Warping{}, p.data());
    const Position<T> position{p, in.drafter(b, j)};
    const bool trusted = deferral_ == Deferral::kToken
                             ? static_cast<double>(p[static_cast<size_t>(token)]) >= position.least_trusted(alpha_)
                             : position.trusts(deferral_, alpha_);
    if (!trusted) return {j, own};
  }
}

// Other devices' logits are judged on the host: the rule compares numbers of a few positions.
Judgement CascadeAcceptance::judge(const Verification& verification) {
  if (!judged_by_rows(verification)) {
    if (!verification.logits.is_cpu()) report_fallback("the rule cascade judges on the CPU", "no kernel does");
    Verification on_host = verification;
    on_host.logits = promoted(verification.logits).cpu();
    on_host.tokens = verification.tokens.cpu();
    on_host.counts = verification.counts.cpu();
    for (at::Tensor& q : on_host.probabilities) q = q.cpu();
    Judgement judgement = judge(on_host);
    for (at::Tensor* numbers : {&judgement.accepted, &judgement.next, &judgement.overlap}) {
      if (numbers->defined()) *numbers = numbers->to(verification.logits.device());
    }
    return judgement;
  }
  const bool greedy = verification.warping.greedy();
  const bool overlaps = verification.tokens.size(1) > 0 && (greedy || verification.measure_overlap);
  return judge_rows(verification, overlaps, [&](const auto& rows, int64_t b, double* values) {
    return greedy ? judge_greedy_row(rows, b, values) : judge_row(rows, b, values);
  });
}

}  // namespace draftsmith::infer
