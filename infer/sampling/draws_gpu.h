// Draws of tokens on CUDA devices, by own kernels (infer/sampling/kernels/draws.cu).
#pragma once

#include <optional>

#include "base/aten.h"
#include "base/kernel_texts.h"

namespace draftsmith::infer {

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

// These return nothing where no kernel takes the arguments: empty ones, or a machine that cannot run kernels.

// Returns draw() of infer/sampling/sampling.h.
std::optional<at::Tensor> draw_by_kernel(const at::Tensor& weights, const at::Tensor& uniforms);
// Returns decide_by_rejection() of infer/acceptance/rejection_operator.h.
std::optional<Decided> reject_by_kernel(const DraftedTokens& drafted);

}  // namespace draftsmith::infer
