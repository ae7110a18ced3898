// What the papers' formulas say of a method before it is run: speculative decoding (Leviathan et al. 2023), the latency
// of SpecGame (Liu, Zhang, Song 2024) and predictive pipelined decoding (Yang et al. 2024); methods.md §1. `draftsmith
// plan` prints them, evaluations set them beside what they measure.
//
// Letters: alpha, the acceptance rate of one drafted token, acceptances taken as independent; G, the draft window
// (gamma, SpecGame's K); c, a drafter step's time over a one-token target step's. Arguments outside their range throw
// std::invalid_argument.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/costs/step_times.h"

namespace draftsmith::evaluate {

// ---- Speculative decoding: Leviathan et al. 2023, section 3

// Equation (1): emitted tokens of one target run, (1 - alpha^(G+1)) / (1 - alpha), in 1 .. G+1. It is also the factor
// by which the target's memory traffic shrinks. alpha in 0..1, window >= 0.
double expected_tokens(double alpha, int64_t window);

// Theorem 3.8: expected factor of speed over the target alone, (1 - alpha^(G+1)) / ((1 - alpha)(G c + t(G+1))) with
// t(L) the relative time of an L-token step (1 in the theorem, else the measured curve).
double walltime_improvement(double alpha, int64_t window, const infer::StepCosts& costs);

// Theorem 3.11: expected factor of arithmetic over the target alone, (1 - alpha)(G c^ + G + 1) / (1 - alpha^(G+1)),
// with c^ >= 0 the drafter's operations a token over the target's.
double operations_factor(double alpha, int64_t window, double operations_ratio);

struct BestWindow {
  int64_t window = 0;  // 0: no window beats the target alone
  double speedup = 1;
};

// The window of 0..max_window with the greatest walltime_improvement, the smallest one among equals (section 3.5; by
// Corollary 3.9 some window helps if and only if alpha > c, when verifying costs as much as one token).
BestWindow best_window(double alpha, const infer::StepCosts& costs, int64_t max_window = 64);

// ---- SpecGame: Liu, Zhang, Song 2024, section 3

// Latency per token of a decoder that drafts K tokens and verifies them, in the unit of its iteration.
struct SpecGameLatency {
  // The paper's E_pt, the mean over iterations of (time / emitted tokens).
  double e_pt = 0;
  // (a + b) / E[n + 1], total time over total tokens: the one that predicts a speedup.
  double long_run = 0;
};

// Equations (12) and (13), (9) for K = 1: E_pt = (1-P)(a+b) + L(1), L(i) = P [(1-P)(a+b)/(i+1) + L(i+1)],
// L(K) = P (a+b)/(K+1). `iteration` is a + b: the drafter's K tokens and the target's verification. `acceptance` is P,
// of one token: alpha for SpS, how often both argmaxes agree for AsG. draft_tokens = 0 is ArD: a + b for both.
SpecGameLatency specgame_latency(double acceptance, int64_t draft_tokens, double iteration);

// The same with a + b of K drafted tokens taken from step times, seconds: K drafter steps and a (K+1)-token target
// step.
SpecGameLatency specgame_latency(double acceptance, int64_t draft_tokens, const infer::StepCosts& costs);

// ---- Predictive pipelined decoding: Yang et al. 2024, section 4

struct PpdSetting {
  int64_t layers = 0;       // d
  int64_t early_layer = 0;  // d-bar, in d/2 .. d: the layer whose output predicts the next token early
  int64_t candidates = 1;   // k: sub-processes, one for each early candidate
  double match_rate = 0;    // p_correct: the final token is among the candidates
};

// In layer-units: the time of one layer for one token.
struct PpdCost {
  double latency = 0;
  double compute = 0;  // units in use, summed over time

  double units_in_use() const { return compute / latency; }
};

// Theorem 4.1, for a sequence of `tokens` >= 1: latency d l - (d - d-bar)(l - 1) p, compute that + k (d - d-bar) l.
PpdCost ppd_cost(const PpdSetting& setting, int64_t tokens);

// Its limit per token for long sequences; at d-bar = d/2 equation (3), d (1 - p/2), for the latency, equation (5),
// (k + 2 - p)/(2 - p), for units_in_use and equation (6) times d, d (2 + k - p)/2, for the compute.
PpdCost ppd_cost_per_token(const PpdSetting& setting);

}  // namespace draftsmith::evaluate
