// Measured times of decoder steps.
#pragma once

#include <cstdint>
#include <vector>

namespace draftsmith::infer {

// Times of one decoder step at a typical length, seconds, as they are while drafter and target take turns. With
// target = {1} and draft = c this is the papers' assumption that verifying costs as much as one token.
struct StepCosts {
  std::vector<double> target;       // target[L-1]: a step of L tokens after L-1 drafted ones; target[0]: greedy's
  double draft = 0;                 // the drafter's step of one token; 0: no drafter
  std::vector<double> drafts = {};  // drafts[n-1]: n draft steps, the first of which follows a step of the target

  double cost_ratio() const { return draft / target.at(0); }
  // Returns the seconds of a round's draft steps; linear between measured numbers of steps. Where none is measured each
  // takes `draft`.
  double drafting(double steps) const;
  // Time of an L-token target step relative to a one-token step; linear between measured lengths, beyond them too but
  // never falling.
  double relative_target(double tokens) const;
};

// Times of rounds of 0, 1, ... draft steps and the target's step that verifies them.
class RoundTimes {
 public:
  // Adds a round of `tokens` - 1 draft steps that took `drafting` seconds together, and a step of `tokens` tokens.
  void add(int64_t tokens, double drafting, double verifying);
  // Returns medians. A round of every number of tokens up to the largest must have been added.
  StepCosts medians() const;

 private:
  std::vector<std::vector<double>> verifying_;  // by tokens - 1
  std::vector<std::vector<double>> drafting_;   // likewise; of one token empty
};

}  // namespace draftsmith::infer
