// Verifications of made-up logits, to ask acceptance rules about directly.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "infer/acceptance/acceptance_rule.h"

namespace draftsmith::infer::testing {

// A verification and what it refers to.
struct JudgedRows {
  std::vector<Row> rows;
  Verification verification;
};

// Returns rows whose drafts were drawn from q of the same `positions` for all: logits of p are [G+1,V], of q [G,V].
// Row b drafts counts[b % counts.size()] tokens.
inline JudgedRows judged_rows(int64_t rows, const at::Tensor& p, const at::Tensor& q,
                              const std::vector<int64_t>& counts, const Warping& warping = {}) {
  JudgedRows made;
  const int64_t window = q.size(0);
  std::vector<int64_t> drafted;
  for (int64_t b = 0; b < rows; ++b) {
    made.rows.emplace_back();
    made.rows.back().random = RowRandom(1, static_cast<uint64_t>(b), 0);
    drafted.push_back(counts[static_cast<size_t>(b) % counts.size()]);
  }
  Verification& verification = made.verification;
  std::vector<at::Tensor> tokens;
  for (int64_t j = 0; j < window; ++j) {
    const at::Tensor logits = q[j].expand({rows, q.size(1)});
    const at::Tensor weights = warp(logits, warping).contiguous();
    verification.probabilities.push_back(warping.greedy() ? warp(logits, {}).contiguous() : weights);
    tokens.push_back(warping.greedy() ? most_likely(logits)
                                      : draw(weights, uniforms(made.rows, Draw::kDraft, j, 1, at::kCPU).squeeze(1)));
  }
  verification.rows = made.rows;
  verification.logits = p.unsqueeze(0).expand({rows, window + 1, p.size(1)}).contiguous();
  verification.tokens = at::stack(tokens, 1);
  verification.counts = to_device(drafted, {rows}, at::kCPU);
  verification.warping = warping;
  verification.measure_overlap = true;
  return made;
}

// Returns each id's share of the first new tokens: those kept, or the target's after nothing was.
inline std::vector<double> shares_of_first(const JudgedRows& judged, const Judgement& judgement) {
  const auto first =
      at::where(judgement.accepted.gt(0), judged.verification.tokens.select(1, 0), judgement.next);  // [B]
  std::vector<double> shares;
  for (int64_t id = 0; id < judged.verification.logits.size(2); ++id) {
    shares.push_back(first.eq(id).to(at::kDouble).mean().item<double>());
  }
  return shares;
}

}  // namespace draftsmith::infer::testing
