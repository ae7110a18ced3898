// The table of decoding methods: what each needs, which parts it is made of, and what it promises. The README shows the
// same table to users.
#pragma once

#include <string>

#include "base/registry.h"

namespace draftsmith::infer {

// Source of a method's drafts.
enum class DraftSource {
  kNone,       // nothing is drafted
  kDrafter,    // any drafter
  kTandem,     // a Tandem secondary of the target
  kOwnLayers,  // the target's first layers, whatever drafter is named
};

// Decoding algorithm.
enum class Algorithm {
  kPlain,        // token by token with the target alone
  kDraftVerify,  // the loop of drafter, window rule and acceptance rule
  kCalm,         // inside the target: each token leaves at an early layer
  kPpd,          // inside the target: the next token begins before one is finished
  kBeam,         // beam search with the target alone
};

// Use of random numbers.
enum class Sampling {
  kNever,      // it takes the most likely token; the temperature must be 0
  kOnRequest,  // at the temperature that the user gives; 0 without one
  kByDefault,  // at the temperature that the user or the model gives; 1 without one
};

struct Method {
  std::string name;
  DraftSource drafts = DraftSource::kNone;
  Algorithm algorithm = Algorithm::kPlain;
  std::string window_rule;  // empty: none
  std::string acceptance;   // empty: none
  Sampling sampling = Sampling::kOnRequest;
  // True if the output at temperature 0 equals greedy decoding of the model and has the model's distribution at others,
  // for methods without an acceptance rule. The others are as lossless as their acceptance rule.
  bool lossless = false;

  bool is_inside() const { return algorithm == Algorithm::kCalm || algorithm == Algorithm::kPpd; }
  bool is_baseline() const { return algorithm == Algorithm::kPlain; }
};

// Returns every method.
const Registry<Method>& decoding_methods();
// Returns the method that others are compared with at this temperature: greedy at 0, else sample.
const Method& baseline_method(double temperature);

}  // namespace draftsmith::infer
