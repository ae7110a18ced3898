// Oracle models with known distributions, exact enumeration of what a sampler should put out, and a chi-square test.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "infer/generator.h"
#include "infer/parts.h"
#include "infer/sampling/sampling.h"
#include "tests/support/oracle_model.h"

namespace draftsmith::infer::testing {

using Ids = std::vector<int64_t>;
constexpr int64_t kEos = 1;

// V ids, EOS 1, start token 0, logits in `dtype`.
model::ModelInfo oracle_info(int64_t vocabulary, at::ScalarType dtype = at::kDouble);

// Distributions that depend on the whole source and prefix, from a counter-based generator: softmax(spread * normal).
// Tokens in `pruned` have probability 0.
OracleFunction random_oracle(int64_t vocabulary, uint64_t seed, double spread = 1.5, Ids pruned = {});
// (1 - share) * a + share * b: a drafter that resembles the target a.
OracleFunction mixture(OracleFunction a, OracleFunction b, double share);
// The same distribution after every prefix.
OracleFunction constant_oracle(std::vector<double> probabilities);
// All mass on one token.
std::vector<double> one_hot(int64_t vocabulary, int64_t token);

// The warping of methods.md written down again, in plain loops.
std::vector<double> warped(std::vector<double> probabilities, const Warping& warping);

// Probability of every sequence that ends at an EOS or has `limit` tokens.
std::map<Ids, double> enumerate(const OracleFunction& function, const Ids& source, const Warping& warping,
                                int64_t limit);

// Pearson's chi-square of counts against probabilities, as a standard normal deviate (Wilson and Hilferty); cells that
// expect fewer than 5 are merged. A sequence of probability 0 that occurred gives infinity.
double chi_square_deviate(const std::map<Ids, double>& expected, const std::map<Ids, int64_t>& counts);

struct Case {
  OracleFunction target;
  OracleFunction drafter;
  int64_t vocabulary = 4;
  at::ScalarType dtype = at::kDouble;
};

// Decodes `sources` with oracles for target and drafter.
std::vector<GenerationResult> decode(const Case& oracles, const DecodeOptions& options, std::span<const Ids> sources);

// Counts of one source's results.
std::map<Ids, int64_t> count_sequences(std::span<const GenerationResult> results);

}  // namespace draftsmith::infer::testing
