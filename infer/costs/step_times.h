// Measured times of decoder steps.
#pragma once

#include <vector>

namespace draftsmith::infer {

// Times of one decoder step at a typical length, seconds, as they are while drafter and target take turns. With
// target = {1} and draft = c this is the papers' assumption that verifying costs as much as one token.
struct StepCosts {
  std::vector<double> target;  // target[L-1]: a step of L tokens after L-1 drafted ones; target[0]: greedy's
  double draft = 0;            // the drafter's step of one token; 0: no drafter

  double cost_ratio() const { return draft / target.at(0); }
  // Time of an L-token target step relative to a one-token step; linear between measured lengths, beyond them too but
  // never falling.
  double relative_target(double tokens) const;
};

}  // namespace draftsmith::infer
