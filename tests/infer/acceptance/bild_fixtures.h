// Scripted oracles and options for tests of BiLD.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {

// Distribution with the given probability on one token, the rest spread over the others but EOS.
inline std::vector<double> peaked(int64_t vocabulary, int64_t token, double probability) {
  std::vector<double> p(static_cast<size_t>(vocabulary), (1 - probability) / static_cast<double>(vocabulary - 2));
  p[kEos] = 0;
  p[static_cast<size_t>(token)] = probability;
  return p;
}

// A model that says script[i] (token, probability) after i tokens, whatever they are; the last entry repeats.
inline OracleFunction scripted(int64_t vocabulary, std::vector<std::pair<int64_t, double>> script) {
  return [=](std::span<const int64_t>, std::span<const int64_t> prefix) {
    const auto& [token, probability] = script[std::min(prefix.size(), script.size() - 1)];
    return peaked(vocabulary, token, probability);
  };
}

constexpr double kNever = std::numeric_limits<double>::infinity();

inline DecodeOptions bild(double fallback, double rollback, int64_t limit) {
  DecodeOptions options;
  options.method = "bild";
  options.fallback = fallback;
  options.rollback = rollback;
  options.max_new_tokens = limit;
  return options;
}

inline GenerationResult run(const Case& oracles, const DecodeOptions& options) {
  return decode(oracles, options, std::vector<Ids>{{2}})[0];
}

}  // namespace draftsmith::infer::testing
