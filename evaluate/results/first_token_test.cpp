#include "evaluate/results/first_token_test.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace draftsmith::evaluate {

FirstTokenTest test_first_tokens(std::span<const TokenMass> tokens, uint64_t seed, const std::string& name) {
  FirstTokenTest test;
  test.tokens = std::ssize(tokens);
  if (tokens.empty()) return test;
  const CounterRandom random(seed, "first tokens " + name);
  std::vector<double> places;
  for (const TokenMass& token : tokens) {
    places.push_back(std::clamp(token.before + token.own * random.uniform(places.size()), 0.0, 1.0));
  }
  std::sort(places.begin(), places.end());
  const auto n = static_cast<double>(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto rank = static_cast<double>(i);
    test.distance = std::max({test.distance, places[i] - rank / n, (rank + 1) / n - places[i]});
  }
  test.p_value = std::min(1.0, 2 * std::exp(-2 * n * test.distance * test.distance));
  test.passed = test.p_value >= kFirstTokenAlarm;
  return test;
}

}  // namespace draftsmith::evaluate
