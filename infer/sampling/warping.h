// How logits are warped into the distribution that is sampled from: temperature, top-k, top-p.
#pragma once

#include <cstdint>

namespace draftsmith::infer {

// Temperatures below this are greedy decoding: 1/T must be a number in single precision, and at 1e-30 a second token
// gets mass only if its logit is the largest's up to 1e-28.
constexpr double kGreedyBelow = 1e-30;

// What most_likely() and draw() give on the CPU where a row holds no usable numbers (NaN, or an infinite largest one).
constexpr int64_t kNoToken = -2;

// Applied to target and drafter alike, in this order. Among equal logits the lower id comes first, so that exactly k
// tokens remain, and the same ones on every machine.
struct Warping {
  double temperature = 1;  // below kGreedyBelow: all mass on the most likely token
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off; else the smallest set of tokens whose mass reaches it

  bool greedy() const { return temperature < kGreedyBelow; }
};

}  // namespace draftsmith::infer
