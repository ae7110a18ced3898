// Explanation of a measured speed: what would make a setting faster, by theory, and where the time went that a
// prediction lacks. It holds for lines decoded one by one with one sample, whose rounds take as long as their own
// steps.
#pragma once

#include <cstdint>
#include <optional>

#include "infer/costs/step_times.h"
#include "infer/loop/timing.h"

namespace draftsmith::evaluate {

// Counts of decoding on the timed lines, without prefills.
struct TimedRuns {
  int64_t tokens = 0;  // new ones
  int64_t target_runs = 0;
  int64_t target_tokens = 0;  // given to the target in these runs
  int64_t draft_runs = 0;

  double tokens_a_round() const;  // a round is a run of the target
  double drafts_a_round() const;
  double width_of_a_round() const;  // tokens given to the target
};

// Returns the acceptance rate of a drafted token with which rounds of as many drafts emit as many tokens, 0..1:
// expected_tokens(alpha, G) of Leviathan et al.'s equation (1), linear between whole G. It is alpha for fixed windows
// whose acceptances are independent, and sums up all that other windows and rules do.
double effective_alpha(const TimedRuns& runs);

// Measured time of a setting on the timed lines.
struct TimedWork {
  int64_t tokens = 0;
  infer::PhaseSeconds seconds;
  double overhead = 0;  // seconds of `other` outside of the rounds
  double waited = 0;    // seconds of all phases in which the decoding thread did not run
};

// Speedups, end to end, with one thing changed. Decoding takes as much less time as a round of the mean number of
// drafts would by the measured times of steps (theorem 3.8 of Leviathan et al. with a measured verification); encoder
// and prompt take the time they took.
struct Improvements {
  double more_alpha = 0;         // the effective alpha + 0.05, at most 1
  double half_draft = 0;         // draft steps take half the time
  double free_verification = 0;  // verifying drafts takes as long as a step of one token
  double no_encoder = 0;         // the encoder takes no time, in the baseline neither
};

// Returns the improvements of a setting with the measured `speedup` over its baseline. Errors: std::invalid_argument
// without runs of the target or times of its steps.
Improvements improvements(const TimedRuns& runs, const TimedWork& own, const TimedWork& baseline, double speedup,
                          const infer::StepCosts& costs);

// Split of the seconds that a new token took beyond a prediction; decoding alone, without encoder and prompt. The parts
// sum to measured - predicted. A negative one took less than expected.
struct SpeedGap {
  double predicted = 0;
  double measured = 0;
  std::optional<double> acceptance;  // other runs than predicted; absent: the runs as counted are the prediction
  double drafting = 0;               // draft steps beyond the time of their number
  double verification = 0;           // target steps likewise
  double cache = 0;                  // taking over tokens and rolling back caches, after each round
  double waiting = 0;                // the decoding thread did not run; taken from each phase in proportion
  double other = 0;                  // outside of the rounds
};

// Returns the gap to a prediction in seconds a token, such as SpecGameLatency::long_run, or to the account of the
// counted runs without one. Errors: as improvements().
SpeedGap speed_gap(const TimedRuns& runs, const TimedWork& own, const infer::StepCosts& costs,
                   std::optional<double> predicted);

}  // namespace draftsmith::evaluate
