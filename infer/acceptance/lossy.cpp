#include "infer/acceptance/lossy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/device_kernels.h"
#include "infer/acceptance/lossless.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

AcceptanceTraits AcceptAll::traits() const {
  return {.name = "accept_all",
          .lossless = false,
          .first_from_target = free_token_,
          .target = free_token_ ? TargetRole::kAddsToken : TargetRole::kReads};
}

Judgement AcceptAll::judge(const Verification& verification) {
  return {.accepted = verification.counts,
          .next = target_token(verification, verification.counts),
          .rolled_back = {},
          .overlap = {}};
}

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

const NamedValues<RollbackRule>& rollback_rules() {
  static const NamedValues<RollbackRule> kRules("rollback rule", {{"effective", RollbackRule::kEffective},
                                                                  {"literal", RollbackRule::kLiteral},
                                                                  {"released_code", RollbackRule::kReleasedCode}});
  return kRules;
}

AcceptanceTraits RollbackAcceptance::traits() const {
  const bool released = rule_ == RollbackRule::kReleasedCode;
  return {.name = "rollback",
          .lossless = false,
          .first_from_target = released,
          .verifies_end = verify_end_,
          .runs_again = released};
}

// Finds the target's own choice at each position once: it also replaces a token that is rolled back.
template <class T>
RowJudgement RollbackAcceptance::judge_row(const RowVerification<T>& in, int64_t b, double* overlaps) const {
  const Warping& warping = in.whole().warping;
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(warping.greedy() ? 0 : vocabulary));  // of one position, warped
  const auto distant = [&](const T* logits, int64_t token) {
    const SoftmaxSums sums = row_softmax_sums(logits, vocabulary);
    return !(sums.highest - static_cast<double>(logits[token]) + std::log(sums.total) <= threshold_);  // or NaN
  };
  bool keeps_all = false;
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    const bool drafted = j < in.drafted(b);
    const int64_t token = drafted ? in.token(b, j) : kNoToken;
    const int64_t own = warping.greedy() ? row_argmax(logits, vocabulary) : kNoToken;
    const bool is_own = drafted && warping.greedy() && own == token;
    const bool broken = warping.greedy() && own == kNoToken;  // logits that fail the row, wherever they stand
    if (drafted && overlaps != nullptr) {
      overlaps[j] = is_own ? 1 : 0;
      if (!warping.greedy()) {
        row_warp(logits, vocabulary, warping, p.data());
        overlaps[j] = row_overlap(p.data(), in.drafter(b, j), vocabulary);
      }
    }
    if (drafted && !broken && (keeps_all || (is_own && rule_ == RollbackRule::kEffective) || !distant(logits, token)))
      continue;
    keeps_all = is_own && rule_ == RollbackRule::kReleasedCode;
    if (keeps_all) continue;
    if (warping.greedy()) return {j, own};
    row_warp(logits, vocabulary, warping, p.data());
    return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
  }
}

Judgement RollbackAcceptance::judge(const Verification& verification) {
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps =
      verification.tokens.size(1) > 0 && (verification.warping.greedy() || verification.measure_overlap);
  Judgement judgement = judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_row(rows, b, values);
  });
  judgement.rolled_back = host_empty({judgement.accepted.size(0)}, at::kBool);
  const auto* accepted = judgement.accepted.const_data_ptr<int64_t>();
  const auto* counts = verification.counts.const_data_ptr<int64_t>();
  auto* rolled_back = judgement.rolled_back.mutable_data_ptr<bool>();
  for (int64_t b = 0; b < judgement.accepted.size(0); ++b) rolled_back[b] = accepted[b] < counts[b];
  return judgement;
}

Judgement RollbackAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto drafted = drafted_positions(verification);         // [B,G]
  const auto heads = verification.logits.narrow(1, 0, window);  // [B,G,V]
  // Not "greater": NaN is distant too, so that its position is the one judged. [B,G]
  auto distant = token_log_probability(heads, verification.tokens).neg().le(threshold_).logical_not();
  at::Tensor own;     // [B,G] greedy decoding only
  at::Tensor broken;  // [B] likewise: some logits are not finite
  at::Tensor failed;  // [B] the whole draft is judged, and some of these logits are not finite
  Judgement judgement;
  if (verification.warping.greedy()) {
    const auto choices = most_likely(heads);
    own = choices.eq(verification.tokens);
    broken = (drafted & choices.eq(kNoToken)).any(1);
    judgement.overlap = own.to(at::kDouble);
    if (rule_ == RollbackRule::kEffective) distant = distant & own.logical_not();
  } else if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(warp(heads, verification.warping), at::stack(verification.probabilities, 1));
  }
  judgement.accepted = leading(drafted & distant.logical_not());
  if (rule_ == RollbackRule::kReleasedCode && own.defined() && window > 0) {
    const auto first = judgement.accepted.clamp_max(window - 1).unsqueeze(1);  // [B,1]
    const auto keeps_all =
        judgement.accepted.lt(verification.counts) & own.gather(1, first).squeeze(1) & broken.logical_not();  // [B]
    failed = judgement.accepted.lt(verification.counts) & own.gather(1, first).squeeze(1) & broken;
    judgement.accepted = at::where(keeps_all, verification.counts, judgement.accepted);
  }
  judgement.rolled_back = judgement.accepted.lt(verification.counts);
  judgement.next = target_token(verification, judgement.accepted);
  if (failed.defined()) judgement.next.masked_fill_(failed, kNoToken);
  return judgement;
}

namespace {

// The least probability of a token that stays.
struct Threshold {
  double epsilon, delta;

  template <class T>
  double of(const T* logits, int64_t vocabulary, double temperature, std::vector<T>& scaled) const {
    for (int64_t i = 0; i < vocabulary; ++i) {
      scaled[static_cast<size_t>(i)] = static_cast<T>(static_cast<double>(logits[i]) / temperature);
    }
    return std::min(epsilon, delta * std::exp(-row_entropy_sums(scaled.data(), vocabulary).entropy()));
  }
};

template <class T>
RowJudgement judge_typical(const RowVerification<T>& in, int64_t b, double* overlaps, const Threshold& threshold) {
  const Row& row = in.row(b);
  const Warping& warping = in.whole().warping;
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(vocabulary));  // of position j
  std::vector<T> scaled(p.size());
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    row_warp(logits, vocabulary, warping, p.data());
    const bool drafted = j < in.drafted(b);
    if (drafted && overlaps != nullptr) overlaps[j] = row_overlap(p.data(), in.drafter(b, j), vocabulary);
    const double chance = drafted ? static_cast<double>(p[static_cast<size_t>(in.token(b, j))]) : 0;
    if (drafted && chance > threshold.of(logits, vocabulary, warping.temperature, scaled)) continue;
    return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
  }
}

}  // namespace

Judgement TypicalAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto heads = verification.logits.narrow(1, 0, window);                                   // [B,G,V]
  const auto p = warp(heads, verification.warping);                                              // [B,G,V]
  const auto chance = p.gather(2, verification.tokens.unsqueeze(2)).squeeze(2).to(at::kDouble);  // [B,G]
  const auto logs = heads.to(at::kDouble).div(verification.warping.temperature).log_softmax(2);
  const auto entropy = at::special_entr(logs.exp()).sum(2);  // [B,G]
  const auto kept = chance.gt(entropy.neg().exp().mul(delta_).clamp_max(epsilon_));
  Judgement judgement;
  judgement.accepted = leading(kept & drafted_positions(verification));
  judgement.next = target_token(verification, judgement.accepted);
  if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(p, at::stack(verification.probabilities, 1));
  }
  return judgement;
}

Judgement TypicalAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return exact_.judge(verification);
  if (!judged_by_rows(verification)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  const Threshold threshold{epsilon_, delta_};
  return judge_rows(verification, overlaps, [&](const auto& rows, int64_t b, double* values) {
    return judge_typical(rows, b, values, threshold);
  });
}

}  // namespace draftsmith::infer
