// Warping of logits into the distribution to sample from: temperature, top-k, top-p, min-p.
#pragma once

#include <cstdint>

namespace draftsmith::infer {

// Temperatures below this limit mean greedy decoding. 1/T must be finite in single precision, and at 1e-30 a second
// token gets mass only if its logit is within 1e-28 of the largest.
constexpr double kGreedyBelow = 1e-30;

// The result of most_likely() and draw() for a row without usable numbers (a NaN, or an infinite largest one).
constexpr int64_t kNoToken = -2;

// Settings that apply to target and drafter alike, in this order. Among equal logits the lower id comes first, so
// exactly k tokens remain, and the same ones on every machine.
struct Warping {
  double temperature = 1;  // below kGreedyBelow: all mass on the most likely token
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off; else the smallest set of tokens whose mass reaches it
  double min_p = 0;        // 0: off; else tokens whose probability is at least this share of the largest

  bool greedy() const { return temperature < kGreedyBelow; }
};

}  // namespace draftsmith::infer
