// Oracle models: functions from (source, prefix) to the distribution of the next token, by which decoding rules are
// tested against exact probabilities, without weights; exact enumeration of what a sampler should put out, and a
// chi-square test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "infer/generator.h"
#include "infer/sampling/sampling.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// Probabilities [V] (summing to 1) of the next token. `prefix`: the tokens put out so far, without the start token;
// decoder-only: prompt and tokens.
using OracleFunction =
    std::function<std::vector<double>(std::span<const int64_t> source, std::span<const int64_t> prefix)>;

class OracleModel : public model::LanguageModel {
 public:
  // info.dtype is that of the logits, log p with -inf for 0. Logits nobody should read are NaN.
  OracleModel(model::ModelInfo info, OracleFunction function);

  const model::ModelInfo& info() const override { return info_; }
  // The hidden states are the source's ids. [B,S,1]
  model::EncoderStates encode(const model::TokenBatch& source) override;
  std::unique_ptr<model::DecodeState> begin(const model::EncoderStates& source, int64_t capacity,
                                            int64_t samples = 1) override;
  std::unique_ptr<model::DecodeState> begin(int64_t rows, int64_t capacity) override;
  // The hidden states of any layer are the tokens' ids. [B,L,1]
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override;

  // Steps and encoder runs so far.
  int64_t steps() const { return steps_; }
  int64_t encodes() const { return encodes_; }

 private:
  struct State;
  void write_logits(const State& state, size_t row, int64_t length, double* out) const;

  model::ModelInfo info_;
  OracleFunction function_;
  int64_t steps_ = 0, encodes_ = 0;
};

}  // namespace draftsmith::infer

namespace draftsmith::infer::testing {

using Ids = std::vector<int64_t>;
constexpr int64_t kEos = 1;

// V ids, EOS 1, start token 0, logits in `dtype`.
model::ModelInfo oracle_info(int64_t vocabulary, at::ScalarType dtype = at::kDouble, bool encoder_decoder = true);

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
  OracleFunction target, drafter;
  int64_t vocabulary = 4;
  at::ScalarType dtype = at::kDouble;
  bool encoder_decoder = true;
};

// Oracles for target and drafter, to which generators refer.
struct OraclePair {
  explicit OraclePair(const Case& oracles);
  GenerationModels models();

  OracleModel target, drafter;
};

// Decodes `sources` with oracles for target and drafter.
std::vector<GenerationResult> decode(const Case& oracles, const DecodeOptions& options, std::span<const Ids> sources);

// Counts of one source's results.
std::map<Ids, int64_t> count_sequences(std::span<const GenerationResult> results);

}  // namespace draftsmith::infer::testing
