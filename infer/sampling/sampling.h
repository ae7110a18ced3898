// Sampling: warping of logits into probabilities (infer/sampling/row_kernels.h), draws by inverse distribution
// function, and random numbers, on all devices. Random numbers depend only on (seed, line, sample, position), so
// results do not depend on the batch.
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "base/kernel_texts.h"
#include "base/random.h"
#include "infer/sampling/row_kernels.h"

namespace draftsmith::infer {

// ---- Tensor operations, for devices other than the CPU
// The reference is the CPU's path, row_kernels.h.

// Returns the most likely tokens, as most_likely() does.
at::Tensor tensor_most_likely(const at::Tensor& logits);

// Warps fp32 or fp64 logits [...,V], as warp() does. temperature >= kGreedyBelow.
at::Tensor tensor_warp(const at::Tensor& logits, const Warping& warping);

// Draws from weights [B,V] with uniforms fp64 [B], as draw() does.
at::Tensor tensor_draw(const at::Tensor& weights, const at::Tensor& uniforms);

// ---- Draws on CUDA devices, by own kernels
// They are in infer/sampling/kernels/draws.cu.

// Returns the source of the kernels.
KernelSource draws_source();

// Drafted tokens, the distributions behind them, and random numbers, for speculative sampling.
struct DraftedTokens {
  at::Tensor p;         // [B,G+1,V] the target's warped probabilities, fp32 or fp64
  at::Tensor q;         // [B,G,V] the drafter's
  at::Tensor tokens;    // int64 [B,G]
  at::Tensor counts;    // int64 [B] tokens of each row
  at::Tensor r_accept;  // fp64 [B,G]
  at::Tensor r_next;    // fp64 [B,G+1]
};

// What speculative sampling decides.
struct Decided {
  at::Tensor accepted;  // int64 [B] leading tokens that are kept
  at::Tensor next;      // int64 [B] the token after them; kNoToken: bad numbers
};

// Returns the source of the kernel of the most likely token, infer/sampling/kernels/most_likely.cu.
KernelSource most_likely_source();

// ---- Sampling on any device

// Returns the warped probabilities [...,V] of logits [...,V]: fp64 for fp64 logits, else fp32. When sampling, a row
// with a NaN or a positive infinity gives NaN.
at::Tensor warp(const at::Tensor& logits, const Warping& warping);

// Returns the most likely token of each position, the lowest id among equals: [...,V] -> int64 [...]. A row with a NaN
// or a positive infinity gives kNoToken.
at::Tensor most_likely(const at::Tensor& logits);

// Returns the largest probability of each position at temperature 1, without truncation: [...,V] -> [...].
at::Tensor confidence(const at::Tensor& logits);

// Returns the log probabilities of `tokens` [...] at temperature 1, without truncation: logits [...,V] -> [...].
at::Tensor token_log_probability(const at::Tensor& logits, const at::Tensor& tokens);

// Draws one token for each row, int64 [B], from weights [B,V] (>= 0, not necessarily normalised) and uniforms fp64 [B]
// in [0,1). A token of weight 0 is never drawn unless all weights are 0. A row whose sum is not finite gives kNoToken.
at::Tensor draw(const at::Tensor& weights, const at::Tensor& uniforms);

// Keeps each row's leading tokens x with r < p(x)/q(x), and draws the token after them: from norm(max(0, p - q)) after
// a rejection, else from p.
Decided decide_by_rejection(const DraftedTokens& drafted);

// Returns the length of the leading run of true: bool [B,G] -> int64 [B].
at::Tensor leading(const at::Tensor& kept);
// Returns values [B,V] at `position` int64 [B] of values [B,P,V]. Copies whole rows instead of gathering elements.
at::Tensor at_position(const at::Tensor& values, const at::Tensor& position);

// The use of a random number. A position's numbers may be read again after a draft was discarded. This biases nothing
// where whether an unexamined token is discarded depends only on earlier positions; elsewhere each round has numbers of
// its own (begin_round).
enum class Draw { kDraft, kAccept, kNext };

// The random numbers of one output.
class RowRandom {
 public:
  RowRandom(uint64_t seed, uint64_t line, uint64_t sample) : random_(seed, line << 16 ^ sample) {}
  // Returns a uniform number in [0, 1) with 40 bits, so that its product with a total never rounds up to the total.
  // `position` is the index of the new token.
  double uniform(Draw use, int64_t position) const {
    const uint64_t counter = round_ << 32 | (static_cast<uint64_t>(position) * 4 + static_cast<uint64_t>(use));
    return static_cast<double>(random_.bits(counter) >> 24) * 0x1p-40;
  }
  // Numbers from here on are those of the round whose first new token has this index, and independent of other rounds'.
  void begin_round(int64_t position) { round_ = static_cast<uint64_t>(position); }

 private:
  CounterRandom random_;
  uint64_t round_ = 0;
};

}  // namespace draftsmith::infer
