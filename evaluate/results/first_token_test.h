// Test of sampled first tokens against the distribution they must have. It finds acceptance rules that change the
// target's distribution, on the outputs of the suite itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace draftsmith::evaluate {

// Place of a token in the distribution that it must be drawn from.
struct TokenMass {
  double before = 0;  // probability of all tokens that are more likely, or equally likely with a lower id
  double own = 0;     // its own probability; 0: it should not have been drawn
};

// p-value below which a test fails. A suite with k tested settings fails by chance at most k times in a million.
constexpr double kFirstTokenAlarm = 1e-6;

struct FirstTokenTest {
  int64_t tokens = 0;   // drawn first tokens, of all lines and samples
  double distance = 0;  // largest difference between the uniform distribution and that of the tokens' places
  double p_value = 1;
  bool passed = true;
};

// Returns the test of independent tokens. A token's place, before + u own with a uniform u, is uniform in [0, 1) if it
// was drawn as it must be, whatever the distributions of the lines. The p-value 2 exp(-2 n D^2) of the Kolmogorov
// distance D bounds the true one for every number n of tokens (Massart 1990). Less than 8 tokens cannot fail; all
// tokens the most likely ones, of probability at most 1/2, fail from 30 on. `name` chooses the numbers u.
FirstTokenTest test_first_tokens(std::span<const TokenMass> tokens, uint64_t seed, const std::string& name);

}  // namespace draftsmith::evaluate
