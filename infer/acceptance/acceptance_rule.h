// An acceptance rule decides which drafted tokens are kept and which token the target adds.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/aten.h"
#include "infer/loop/device_rows.h"
#include "infer/loop/rows.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

// What the target does with a finished draft.
enum class TargetRole {
  kVerifies,   // judges it and adds a token
  kAddsToken,  // reads it, all of which is kept, and adds a token
  kReads,      // reads it, all of which is kept
};

struct AcceptanceTraits {
  std::string name;
  bool lossless = true;             // the output has the target's distribution (greedy: equals its output)
  bool needs_distribution = false;  // reads q when sampling
  bool looks_ahead = false;         // whether a token is kept depends on later ones; needs random numbers of each round
  bool greedy_only = false;         // makes sense at temperature 0 only
  bool verifies_end = true;         // false: a draft that ends its text is output without a run of the target
  bool rolls_back = false;          // tokens that are not kept count as rollbacks
  // judge() works with rows that only the device knows, by tensor operations alone: it neither waits for the device nor
  // keeps anything, so that what it does can be recorded and replayed.
  bool on_device = false;
  TargetRole target = TargetRole::kVerifies;
};

// A draft and the target's logits for it, on the device. G is the batch's longest window; row b drafted counts[b]
// tokens.
struct Verification {
  std::span<const Row> rows;              // empty if `on_device` is given
  at::Tensor logits;                      // [B,G+1,V] the target's, processed; valid up to position counts[b] of row b
  at::Tensor tokens;                      // int64 [B,G] drafted
  at::Tensor counts;                      // int64 [B]
  std::vector<at::Tensor> probabilities;  // warped q, one [B,V] for each of G; empty unless needed
  Warping warping;
  bool measure_overlap = false;
  const DeviceRows* on_device = nullptr;  // rows that only the device knows
};

struct Judgement {
  at::Tensor accepted;      // int64 [B] number of leading drafted tokens that are kept
  at::Tensor next;          // int64 [B] the target's token after them; kNoToken: bad logits
  at::Tensor overlap = {};  // fp64 [B,G] sum_x min(p, q) up to the first token not kept; undefined: not measured
};

class AcceptanceRule {
 public:
  virtual ~AcceptanceRule() = default;
  virtual AcceptanceTraits traits() const = 0;
  virtual Judgement judge(const Verification& verification) = 0;
};

// Judgement on the device in one tensor, with the drafted tokens or without: one copy brings all to the host.
struct PackedJudgement {
  at::Tensor columns;    // int64 [B,C]: accepted, next, the drafted tokens, the bits of the overlap's fp64
  int64_t tokens = 0;    // columns of drafted tokens
  bool overlap = false;  // the overlap was measured

  // Returns the drafted tokens, int64 [B,G], from a copy of the columns on the host.
  at::Tensor tokens_of(const at::Tensor& host) const { return host.narrow(1, 2, tokens); }
  // Returns the judgement from this copy.
  Judgement judgement_of(const at::Tensor& host) const;
};

// Packs a judgement and, if defined, the drafted tokens [B,G] on the device.
PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens);

// A rule whose judgements another hears of. It does not judge on the device, where nobody can listen.
class WatchedRule final : public AcceptanceRule {
 public:
  using Watch = std::function<void(const Verification&, const Judgement&)>;

  WatchedRule(std::unique_ptr<AcceptanceRule> rule, Watch watch) : rule_(std::move(rule)), watch_(std::move(watch)) {}
  AcceptanceTraits traits() const override {
    AcceptanceTraits traits = rule_->traits();
    traits.on_device = false;
    return traits;
  }
  Judgement judge(const Verification& verification) override {
    Judgement judgement = rule_->judge(verification);
    watch_(verification, judgement);
    return judgement;
  }

 private:
  std::unique_ptr<AcceptanceRule> rule_;
  Watch watch_;
};

// Returns whether each position holds a token that its row drafted, bool [B,G].
at::Tensor drafted_positions(const Verification& verification);
// Returns the random numbers of the next `count` new tokens, on the logits' device: fp64 [B,count].
at::Tensor uniforms_of(const Verification& verification, Draw use, int64_t count);
// Returns the target's token at position `at` int64 [B] of each row: the most likely one, or a draw from the warped
// distribution.
at::Tensor target_token(const Verification& verification, const at::Tensor& at);
// Judges at temperature 0 in tensor operations, every position at once: keeps the target's most likely tokens, and
// those whose logit is at most `slack` below the largest.
Judgement judge_greedy_tensors(const Verification& verification, double slack);
// Returns sum_x min(p, q) of warped p [B,>=G,V] and q [B,G,V]: fp64 [B,G].
at::Tensor overlap(const at::Tensor& p, const at::Tensor& q);

}  // namespace draftsmith::infer
