// Formulas that predict a method's speed (methods.md §1): speculative decoding (Leviathan et al. 2023), SpecGame's
// latency (Liu, Zhang, Song 2024) and predictive pipelined decoding (Yang et al. 2024). `draftsmith plan` uses the
// first, and evaluations compare all with measurements.
//
// alpha is the acceptance rate of one drafted token; acceptances are assumed independent. G is the draft window (gamma,
// SpecGame's K). c is the time of a drafter step over that of a one-token target step. All functions throw
// std::invalid_argument for arguments outside their range.
#pragma once

#include <cstdint>
#include <optional>

#include "infer/costs/step_costs.h"

namespace draftsmith::evaluate {

// ---- Speculative decoding: Leviathan et al. 2023, section 3

// Returns equation (1), the tokens emitted per target run: (1 - alpha^(G+1)) / (1 - alpha), in 1 .. G+1. The target's
// memory traffic shrinks by this factor. alpha in 0..1, window >= 0. Outputs that end after `length` tokens have fewer
// a run, since their last run drafts beyond the end; 0: they never end, as in the equation.
double expected_tokens(double alpha, int64_t window, int64_t length = 0);

// Returns theorem 3.8, the expected speedup over the target alone: (1 - alpha^(G+1)) / ((1 - alpha)(G c + t(G+1))).
// t(L) is the relative time of an L-token step: 1 in the theorem, here the measured curve. `length`: see
// expected_tokens().
double walltime_improvement(double alpha, int64_t window, const infer::StepCosts& costs, int64_t length = 0);

// Returns theorem 3.11, the expected operations relative to the target alone:
// (1 - alpha)(G c^ + G + 1) / (1 - alpha^(G+1)). c^ >= 0 is the drafter's operations per token over the target's.
double operations_factor(double alpha, int64_t window, double operations_ratio);

struct BestWindow {
  int64_t window = 0;  // 0: every window is slower than the target alone
  double speedup = 1;
};

// Returns the window of 0..max_window with the greatest walltime_improvement(), the smallest of equals (section 3.5).
// By corollary 3.9 some window helps if and only if alpha > c, provided that verifying costs as much as one token.
BestWindow best_window(double alpha, const infer::StepCosts& costs, int64_t max_window = 64, int64_t length = 0);

// Returns the least acceptance rate with which some window is faster than the target alone; nothing if none is.
std::optional<double> break_even_alpha(const infer::StepCosts& costs, int64_t max_window, int64_t length = 0);

// ---- SpecGame: Liu, Zhang, Song 2024, section 3

// Latency per token of a decoder that drafts K tokens and verifies them, in the unit of its iteration.
struct SpecGameLatency {
  double e_pt = 0;      // E_pt of the paper: mean over iterations of (time / emitted tokens)
  double long_run = 0;  // (a + b) / E[n + 1]: total time over total tokens; only this predicts a speedup
};

// Returns equations (12) and (13), for K = 1 equation (9): E_pt = (1-P)(a+b) + L(1),
// L(i) = P [(1-P)(a+b)/(i+1) + L(i+1)], L(K) = P (a+b)/(K+1).
// a + b, the drafter's K tokens and the target's verification, is of step times, in seconds. `acceptance` is P of one
// token: alpha for SpS, the agreement of both argmaxes for AsG. draft_tokens = 0 is ArD, with latency a + b.
SpecGameLatency specgame_latency(double acceptance, int64_t draft_tokens, const infer::StepCosts& costs);

// ---- Predictive pipelined decoding: Yang et al. 2024, section 4

// Returns theorem 4.1's latency for a token of a long sequence, in the time of a layer: d - (d - d-bar) p. d-bar, in
// d/2 .. d, is the layer that predicts the next token early, and p how often that token is among the candidates. At
// d-bar = d/2 it is equation (3), d (1 - p/2).
double ppd_latency(int64_t layers, int64_t early_layer, double match_rate);

}  // namespace draftsmith::evaluate
