// Sampling: warping of logits into probabilities (temperature, top-k, top-p), draws by inverse distribution function,
// and random numbers that depend on (seed, line, sample, position) alone, so that the batch changes nothing.
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "base/random.h"
#include "infer/sampling/warping.h"

namespace draftsmith::infer {

// Probabilities [...,V] of logits [...,V]: fp64 for fp64 logits, else fp32.
at::Tensor warp(const at::Tensor& logits, const Warping& warping);

// Most likely token of each position, the lowest id among equals: [...,V] -> int64 [...]. NaN counts as the
// smallest; a row of nothing else gives kNoToken (CPU, fp32 and fp64).
at::Tensor most_likely(const at::Tensor& logits);

// Largest probability of each position at temperature 1, nothing cut: [...,V] -> [...].
at::Tensor confidence(const at::Tensor& logits);

// Log probabilities of `tokens` [...] at temperature 1, nothing cut: logits [...,V] -> [...].
at::Tensor token_log_probability(const at::Tensor& logits, const at::Tensor& tokens);

// One token a row from weights [B,V] (>= 0, not necessarily normalised) and uniforms fp64 [B] in [0,1): int64 [B]. A
// token of weight 0 is never drawn unless all weights are 0. A row whose sum is not finite gives kNoToken (CPU).
at::Tensor draw(const at::Tensor& weights, const at::Tensor& uniforms);

// What a random number is used for. A position's numbers may be read again after a draft was discarded: whether a token
// is discarded without having been examined depends on earlier positions only, so this biases nothing.
enum class Draw { kDraft, kAccept, kNext };

// The random numbers of one output.
class RowRandom {
 public:
  RowRandom(uint64_t seed, uint64_t line, uint64_t sample) : random_(seed, line << 16 ^ sample) {}
  // Uniform in [0, 1) with 40 bits, so that products with a total never round up to it. `position` is the index of the
  // new token it is drawn for.
  double uniform(Draw use, int64_t position) const {
    const uint64_t counter = static_cast<uint64_t>(position) * 4 + static_cast<uint64_t>(use);
    return static_cast<double>(random_.bits(counter) >> 24) * 0x1p-40;
  }

 private:
  CounterRandom random_;
};

}  // namespace draftsmith::infer
