#include "infer/acceptance/acceptance_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <ATen/Dispatch.h>

#include "base/device_tensors.h"
#include "infer/decode_options.h"
#include "infer/sampling/row_kernels.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

// ---- Judgement on the CPU
// Drafts are judged row by row and position by position, so that those behind the first rejected cost nothing.

namespace {

// A rule's judgement of one row.
struct RowJudgement {
  int64_t accepted = 0;
  int64_t next = 0;  // the target's token; kNoToken: its logits are not numbers
};

// A verification on the CPU as plain numbers of type T. The verification must outlive it.
template <class T>
class RowVerification {
 public:
  explicit RowVerification(const Verification& verification)
      : verification_(verification),
        logits_(verification.logits.contiguous()),
        counts_(verification.counts.contiguous()) {
    for (const at::Tensor& q : verification.probabilities) q_.push_back(q.to(logits_.scalar_type()).contiguous());
  }

  const Verification& whole() const { return verification_; }
  const Row& row(int64_t b) const { return verification_.rows[static_cast<size_t>(b)]; }
  int64_t vocabulary() const { return logits_.size(2); }
  int64_t drafted(int64_t b) const { return counts_.const_data_ptr<int64_t>()[b]; }
  int64_t token(int64_t b, int64_t j) const {
    const at::Tensor& tokens = verification_.tokens;  // rows of a wider matrix
    return tokens.const_data_ptr<int64_t>()[b * tokens.stride(0) + j];
  }
  // Returns the target's logits, [V], for j up to drafted(b).
  const T* logits(int64_t b, int64_t j) const {
    return logits_.const_data_ptr<T>() + (b * logits_.size(1) + j) * vocabulary();
  }
  // Returns the drafter's warped probabilities, [V].
  const T* drafter(int64_t b, int64_t j) const {
    return q_[static_cast<size_t>(j)].template const_data_ptr<T>() + b * vocabulary();
  }

 private:
  const Verification& verification_;
  at::Tensor logits_;  // [B,G+1,V]
  at::Tensor counts_;  // [B]
  std::vector<at::Tensor> q_;
};

// Judges every row that is not finished with judge(rows, b, overlaps): RowVerification of the logits' type, the row's
// index and the place for its overlaps, [G], or null if they are not wanted.
template <class Judge>
Judgement judge_rows(const Verification& verification, bool overlap, const Judge& judge) {
  const int64_t rows = verification.tokens.size(0);
  const int64_t window = verification.tokens.size(1);
  Judgement judgement;
  judgement.accepted = host_empty({rows}, at::kLong);
  judgement.next = host_empty({rows}, at::kLong);
  if (overlap) {
    judgement.overlap = host_empty({rows, window}, at::kDouble);
    std::fill_n(judgement.overlap.template mutable_data_ptr<double>(), rows * window, 0.0);
  }
  AT_DISPATCH_FLOATING_TYPES(verification.logits.scalar_type(), "judge", [&] {
    const RowVerification<scalar_t> numbers(verification);
    for (int64_t b = 0; b < rows; ++b) {
      RowJudgement row;
      if (!numbers.row(b).finished) {
        row = judge(numbers, b, overlap ? judgement.overlap.template mutable_data_ptr<double>() + b * window : nullptr);
      }
      judgement.accepted.template mutable_data_ptr<int64_t>()[b] = row.accepted;
      judgement.next.template mutable_data_ptr<int64_t>()[b] = row.next;
    }
  });
  return judgement;
}

// ---- Rules

// Slack of the greedy rules that keep the target's own choices alone.
constexpr double kOwnChoices = -std::numeric_limits<double>::infinity();

// Keeps the target's most likely tokens, and those whose logit is at most `slack` below the largest.
template <class T>
RowJudgement judge_greedy_row(const RowVerification<T>& in, int64_t b, double* overlaps, double slack) {
  for (int64_t j = 0;; ++j) {
    const T* logits = in.logits(b, j);
    const int64_t own = row_argmax(logits, in.vocabulary());
    if (j == in.drafted(b) || own == kNoToken) return {j, own};
    const int64_t token = in.token(b, j);
    if (overlaps != nullptr) overlaps[j] = own == token ? 1 : 0;
    if (own != token && !(static_cast<double>(logits[token]) >= static_cast<double>(logits[own]) - slack)) {
      return {j, own};
    }
  }
}

Judgement judge_greedily(const Verification& verification, double slack) {
  if (!has_row_kernels(verification.logits)) return judge_greedy_tensors(verification, slack);
  return judge_rows(verification, verification.tokens.size(1) > 0, [=](const auto& rows, int64_t b, double* values) {
    return judge_greedy_row(rows, b, values, slack);
  });
}

template <class T>
RowJudgement judge_by_rejection(const RowVerification<T>& in, int64_t b, double* overlaps, double lenience) {
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(vocabulary));  // of position j
  const auto warp_position = [&](int64_t j) { row_warp(in.logits(b, j), vocabulary, in.whole().warping, p.data()); };
  int64_t j = 0;
  warp_position(0);
  for (; j < in.drafted(b); warp_position(++j)) {
    const T* q = in.drafter(b, j);
    if (overlaps != nullptr) overlaps[j] = row_overlap(p.data(), q, vocabulary);
    const int64_t token = in.token(b, j);
    const double chance = row.random.uniform(Draw::kAccept, row.emitted() + j);
    // r < p/(l q) without dividing; strict, so that p = 0 is never accepted.
    const double counted = lenience * static_cast<double>(q[token]);
    if (chance * counted < static_cast<double>(p[static_cast<size_t>(token)])) continue;
    if (row_residual(p.data(), q, vocabulary, 1 / lenience) <= 0) warp_position(j);
    break;
  }
  return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
}

}  // namespace

Judgement ExactAcceptance::judge(const Verification& verification) {
  return judge_greedily(verification, kOwnChoices);
}

Judgement RejectionAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto p = warp(verification.logits, verification.warping);                            // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : p.narrow(1, 0, 0);  // [B,G,V]
  const auto counted = lenience_ == 1 ? q : q.mul(lenience_);
  const Decided decided = decide_by_rejection({p, counted, verification.tokens, verification.counts,
                                               uniforms_of(verification, Draw::kAccept, window),
                                               uniforms_of(verification, Draw::kNext, window + 1)});
  Judgement judgement{.accepted = decided.accepted, .next = decided.next};
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, q);
  return judgement;
}

Judgement RejectionAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) {
    return judge_greedily(verification, lenience_ == 1 ? kOwnChoices : -std::log(lenience_));
  }
  if (!has_row_kernels(verification.logits)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  return judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_by_rejection(rows, b, values, lenience_);
  });
}

namespace {

// The longest prefix of a draft that is kept so far, and the probability p_i with which it may stay.
struct Prefix {
  int64_t length = 0;
  double chance = 1;
};

// Judges one row on the CPU.
template <class T>
class RowBlock {
 public:
  RowBlock(const RowVerification<T>& in, int64_t b)
      : in_(in), b_(b), row_(in.row(b)), p_(static_cast<size_t>(in.vocabulary())) {}

  // Visits positions in order. Nothing is kept from a position on whose p_i is 0 or no number.
  RowJudgement judge(double* overlaps) {
    const int64_t drafted = in_.drafted(b_);
    double chance = 1;  // p_i
    for (int64_t i = 0; i < drafted && chance > 0; ++i) {
      warp(i);
      const T* q = in_.drafter(b_, i);
      if (overlaps != nullptr) overlaps[i] = row_overlap(p_.data(), q, in_.vocabulary());
      if (i > 0) consider({i, chance}, chance_of_all_after(chance, q));
      const auto token = static_cast<size_t>(in_.token(b_, i));
      const double grown = chance * static_cast<double>(p_[token]) / static_cast<double>(q[token]);
      chance = grown >= 0 ? std::min(1.0, grown) : 0;  // 0 for NaN
    }
    if (drafted > 0 && chance > 0) consider({drafted, chance}, chance);
    return {kept_.length, next_token()};
  }

 private:
  void warp(int64_t i) { row_warp(in_.logits(b_, i), in_.vocabulary(), in_.whole().warping, p_.data()); }

  // Returns h_i of a prefix that further tokens follow.
  double chance_of_all_after(double chance, const T* q) const {
    if (chance >= 1) return 1;
    const double excess = row_excess(p_.data(), q, in_.vocabulary(), chance);
    return excess / (excess + 1 - chance);
  }

  void consider(const Prefix& prefix, double chance) {
    if (row_.random.uniform(Draw::kAccept, row_.emitted() + prefix.length - 1) < chance) kept_ = prefix;
  }

  int64_t next_token() {
    warp(kept_.length);
    const int64_t vocabulary = in_.vocabulary();
    if (kept_.length < in_.drafted(b_) &&
        row_residual(p_.data(), in_.drafter(b_, kept_.length), vocabulary, kept_.chance) <= 0) {
      warp(kept_.length);
    }
    return row_draw(p_.data(), vocabulary, row_.random.uniform(Draw::kNext, row_.emitted() + kept_.length));
  }

  const RowVerification<T>& in_;
  int64_t b_;
  const Row& row_;
  std::vector<T> p_;  // [V] of one position
  Prefix kept_;
};

// Judges all rows in tensors, position by position.
class TensorBlock {
 public:
  TensorBlock(const at::Tensor& p, const at::Tensor& q, const Verification& verification)
      : p_(p), q_(q), counts_(verification.counts), kept_(at::zeros_like(counts_)) {
    const int64_t window = verification.tokens.size(1);
    kept_chance_ = at::ones({counts_.size(0)}, p.options().dtype(at::kDouble));
    const auto index = verification.tokens.unsqueeze(2);                           // [B,G,1]
    const auto p_token = p.narrow(1, 0, window).gather(2, index).to(at::kDouble);  // [B,G,1]
    ratio_ = p_token.div(q.gather(2, index)).squeeze(2);                           // [B,G]
    uniforms_ = uniforms_of(verification, Draw::kAccept, window);                  // [B,G]
  }

  // Returns the number of kept tokens, [B].
  at::Tensor judge() {
    auto chance = at::ones_like(kept_chance_);  // p_i, [B]
    const int64_t window = q_.size(1);
    for (int64_t i = 0; i <= window; ++i) {
      if (i > 0) consider(i, chance);
      if (i < window) chance = at::where(counts_.gt(i), chance.mul(ratio_.select(1, i)).clamp_max(1), chance);
    }
    return kept_;
  }

  // Returns the weights of the target's token, [B,V].
  at::Tensor next_weights() const {
    const auto target = at_position(p_, kept_);
    if (q_.size(1) == 0) return target;
    const auto drafter = at_position(q_, kept_.clamp_max(q_.size(1) - 1));
    const auto rest = excess(target, drafter, kept_chance_);
    return at::where(kept_.lt(counts_).unsqueeze(1) & rest.sum(1, true).gt(0), rest, target);
  }

 private:
  static at::Tensor excess(const at::Tensor& p, const at::Tensor& q, const at::Tensor& chance) {
    return p.mul(chance.to(p.scalar_type()).unsqueeze(1)).sub_(q).clamp_min_(0);
  }

  // Keeps the first i tokens of the rows that drafted so many and whose number is below h_i.
  void consider(int64_t i, const at::Tensor& chance) {
    auto limit = chance;
    if (i < q_.size(1)) {
      const auto rest = excess(p_.select(1, i), q_.select(1, i), chance).sum(1, false, at::kDouble);
      const auto followed = at::where(chance.ge(1), at::ones_like(chance), rest.div(rest.add(1).sub(chance)));
      limit = at::where(counts_.gt(i), followed, chance);
    }
    const auto keeps = uniforms_.select(1, i - 1).lt(limit) & counts_.ge(i);
    kept_ = kept_.masked_fill(keeps, i);
    kept_chance_ = at::where(keeps, chance, kept_chance_);
  }

  at::Tensor p_, q_;        // [B,G+1,V], [B,G,V]
  at::Tensor counts_;       // [B]
  at::Tensor kept_;         // [B]
  at::Tensor kept_chance_;  // [B] p_i of the kept prefix
  at::Tensor ratio_;        // [B,G] p/q of the drafted tokens
  at::Tensor uniforms_;     // [B,G]
};

}  // namespace

Judgement BlockAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto p = warp(verification.logits, verification.warping);                            // [B,G+1,V]
  const auto q = window > 0 ? at::stack(verification.probabilities, 1) : p.narrow(1, 0, 0);  // [B,G,V]
  TensorBlock block(p, q, verification);
  Judgement judgement;
  judgement.accepted = block.judge();
  const auto numbers = uniforms_of(verification, Draw::kNext, window + 1);  // [B,G+1]
  judgement.next = draw(block.next_weights(), numbers.gather(1, judgement.accepted.unsqueeze(1)).squeeze(1));
  if (verification.measure_overlap && window > 0) judgement.overlap = overlap(p, q);
  return judgement;
}

Judgement BlockAcceptance::judge(const Verification& verification) {
  if (verification.warping.greedy()) return judge_greedily(verification, kOwnChoices);
  if (!has_row_kernels(verification.logits)) return judge_tensors(verification);
  const bool overlaps = verification.measure_overlap && verification.tokens.size(1) > 0;
  return judge_rows(verification, overlaps,
                    [](const auto& rows, int64_t b, double* values) { return RowBlock(rows, b).judge(values); });
}

// ---- BiLD

const NamedValues<RollbackRule>& rollback_rules() {
  static const NamedValues<RollbackRule> kRules(
      "rollback rule", {{"effective", RollbackRule::kEffective}, {"literal", RollbackRule::kLiteral}});
  return kRules;
}

namespace {

// Finds the target's own choice at each position once: it also replaces a token that is rolled back.
template <class T>
RowJudgement judge_rollback(const RowVerification<T>& in, int64_t b, double* overlaps, double threshold,
                            RollbackRule rule) {
  const Warping& warping = in.whole().warping;
  const Row& row = in.row(b);
  const int64_t vocabulary = in.vocabulary();
  std::vector<T> p(static_cast<size_t>(warping.greedy() ? 0 : vocabulary));  // of one position, warped
  const auto distant = [&](const T* logits, int64_t token) {
    const SoftmaxSums sums = row_softmax_sums(logits, vocabulary);
    return !(sums.highest - static_cast<double>(logits[token]) + std::log(sums.total) <= threshold);  // or NaN
  };
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
    if (drafted && !broken && ((is_own && rule == RollbackRule::kEffective) || !distant(logits, token))) continue;
    if (warping.greedy()) return {j, own};
    row_warp(logits, vocabulary, warping, p.data());
    return {j, row_draw(p.data(), vocabulary, row.random.uniform(Draw::kNext, row.emitted() + j))};
  }
}

}  // namespace

Judgement RollbackAcceptance::judge(const Verification& verification) {
  if (!has_row_kernels(verification.logits)) return judge_tensors(verification);
  const bool overlaps =
      verification.tokens.size(1) > 0 && (verification.warping.greedy() || verification.measure_overlap);
  return judge_rows(verification, overlaps, [this](const auto& rows, int64_t b, double* values) {
    return judge_rollback(rows, b, values, threshold_, rule_);
  });
}

Judgement RollbackAcceptance::judge_tensors(const Verification& verification) const {
  const int64_t window = verification.tokens.size(1);
  const auto heads = verification.logits.narrow(1, 0, window);  // [B,G,V]
  // Not "greater": NaN is distant too, so that its position is the one judged. [B,G]
  auto distant = token_log_probability(heads, verification.tokens).neg().le(threshold_).logical_not();
  Judgement judgement;
  if (verification.warping.greedy()) {
    const auto own = most_likely(heads).eq(verification.tokens);  // [B,G]
    judgement.overlap = own.to(at::kDouble);
    if (rule_ == RollbackRule::kEffective) distant = distant & own.logical_not();
  } else if (verification.measure_overlap && window > 0) {
    judgement.overlap = overlap(warp(heads, verification.warping), at::stack(verification.probabilities, 1));
  }
  judgement.accepted = leading(drafted_positions(verification) & distant.logical_not());
  judgement.next = target_token(verification, judgement.accepted);
  return judgement;
}

// ---- The list of rules

namespace {

using MadeRule = std::unique_ptr<AcceptanceRule>;

struct AcceptanceRuleEntry {
  std::string name;
  MadeRule (*make)(const DecodeOptions&);  // a rule's traits cost no more than making it
};

const Registry<AcceptanceRuleEntry>& acceptance_rules() {
  static const Registry<AcceptanceRuleEntry> kRules(
      "acceptance rule",
      {{"accept_all", [](const DecodeOptions& o) -> MadeRule { return std::make_unique<AcceptAll>(o.free_token); }},
       {"exact", [](const DecodeOptions&) -> MadeRule { return std::make_unique<ExactAcceptance>(); }},
       {"rejection",
        [](const DecodeOptions& o) -> MadeRule { return std::make_unique<RejectionAcceptance>(o.lenience); }},
       {"block", [](const DecodeOptions&) -> MadeRule { return std::make_unique<BlockAcceptance>(); }},
       {"rollback", [](const DecodeOptions& o) -> MadeRule {
          return std::make_unique<RollbackAcceptance>(o.rollback, rollback_rules().at(o.rollback_rule), o.verify_end);
        }}});
  return kRules;
}

}  // namespace

std::vector<std::string> acceptance_rule_names() {
  return acceptance_rules().names();
}

AcceptanceTraits acceptance_traits(const DecodeOptions& options) {
  return make_acceptance_rule(options)->traits();
}

std::unique_ptr<AcceptanceRule> make_acceptance_rule(const DecodeOptions& options) {
  return acceptance_rules().at(options.acceptance_name()).make(options);
}

}  // namespace draftsmith::infer
