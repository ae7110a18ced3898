// An acceptance rule says which drafted tokens to keep and which token the target adds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "infer/loop/rows.h"
#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

struct AcceptanceTraits {
  std::string name;
  bool lossless = true;             // the output is distributed as the target's own (greedy: equals it)
  bool needs_distribution = false;  // reads q when sampling
  bool greedy_only = false;         // makes sense at temperature 0 only
  bool first_from_target = false;   // the target writes the first token of each row
  bool verifies = true;             // judges drafts; false: every drafted token is kept
  bool adds_token = true;           // a token of the target's follows each draft; false: only without `verifies`
};

// A judged draft, on the device. G is the longest window of the batch; row b drafted counts[b] of them.
struct Verification {
  std::span<const Row> rows;
  at::Tensor logits;  // [B,G+1,V] the target's, processed; row b's are valid up to position counts[b]
  at::Tensor tokens;  // int64 [B,G] drafted
  at::Tensor counts;  // int64 [B]
  std::vector<at::Tensor> probabilities;  // G of [B,V], warped q; empty unless needed and sampling
  Warping warping;
  bool measure_overlap = false;
};

struct Judgement {
  at::Tensor accepted;     // int64 [B] leading drafted tokens that are kept
  at::Tensor next;         // int64 [B] the target's token after them; -1: none in this run
  at::Tensor rolled_back;  // bool [B]; undefined: no rule of rollbacks
  at::Tensor overlap;      // fp64 [B,G] sum_x min(p, q) up to the first token not kept; undefined: not measured
};

class AcceptanceRule {
 public:
  virtual ~AcceptanceRule() = default;
  virtual AcceptanceTraits traits() const = 0;
  virtual Judgement judge(const Verification& verification) = 0;
};

// --- what rules share ---

// bool [B,G]: whether the position holds a token that its row drafted.
at::Tensor drafted_positions(const Verification& verification);
// Length of the leading run of true: bool [B,G] -> int64 [B].
at::Tensor leading(const at::Tensor& kept);
// The target's token at position `at` int64 [B] of each row: its most likely one, or a draw from its warped
// distribution.
at::Tensor target_token(const Verification& verification, const at::Tensor& at);
// Rows [B,V] at `position` int64 [B] of values [B,P,V]: whole rows are copied, not single elements gathered.
at::Tensor at_position(const at::Tensor& values, const at::Tensor& position);
// sum_x min(p, q) of warped p [B,>=G,V] and q [B,G,V]: fp64 [B,G].
at::Tensor overlap(const at::Tensor& p, const at::Tensor& q);

}  // namespace draftsmith::infer
