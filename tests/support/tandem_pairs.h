// Small pairs of a model and a drafter that reads its states, in fp64, which write varied outputs, some of which end
// early: Tandems of T5 and Llama, and T5 drafters that share the target's encoder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "infer/generator.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {

enum class Kind { kEncoderDecoder, kDecoderOnly };
constexpr Kind kKinds[] = {Kind::kEncoderDecoder, Kind::kDecoderOnly};

// Noise of secondaries that are right now and then.
constexpr double kNoise = 0.1;

struct TandemPair {
  std::unique_ptr<model::TransformerModel> primary;
  std::shared_ptr<model::TransformerModel> secondary;  // or another drafter that reads the primary

  GenerationModels models() const;
  std::vector<GenerationResult> run(const DecodeOptions& options) const;
};

// Makes weights whose outputs vary, and EOS likelier than the other tokens, by `eos`. Layers after the first one's
// write to the hidden state with `later`. With `noise` a drafter of the weights is right now and then.
void make_lively(const model::TransformerModel& made, uint64_t seed, double eos, double later = 2.5, double noise = 0);

// A primary whose weights are large enough that outputs vary.
std::unique_ptr<model::TransformerModel> tandem_primary_model(Kind kind, int64_t vocabulary = 24);

// The secondary is the primary itself, projections are identities and layer j + 1 reads what it reads there (methods.md
// §4), but for `noise` on all weights, relative to their size: right now and then.
TandemPair identity_pair(Kind kind, double noise = 0, int64_t vocabulary = 24);

// A secondary of another width, depth and number of heads, whose layers read representations 2 and 0 of the primary.
TandemPair random_pair(Kind kind);

// The same with drafters that share the primary's encoder, a T5: the primary itself but for `noise`, and a narrower and
// shallower one.
TandemPair identity_shared_encoder(double noise = 0, int64_t vocabulary = 24);
TandemPair random_shared_encoder();

// Returns a features drafter that begins as the primary's last two layers, with it; in block mode with a Markov bias.
TandemPair features_pair(Kind kind, int64_t vocabulary = 24, bool block = false);

// Inputs of different lengths; prompts where the kind needs them not to be empty.
std::vector<std::vector<int64_t>> tandem_sources(Kind kind);

// Options of up to 18 new tokens at temperature 0.
DecodeOptions tandem_options(const std::string& method, int64_t window = 4, int64_t batch = 1);

// Expects the primary's own outputs with windows by confidence, with look-up before the drafter, and with BiLD that
// rolls back at every difference.
void expect_lossless_otherwise(const TandemPair& pair, int64_t batch);

// Samples of one input, 8,000 of three tokens by the options' method: how far they are from the primary's distribution
// (a deviate above 4.5 happens once in 300,000 true tests), and what was counted.
struct PairSamples {
  double deviate;
  DecodeStats stats;
};
PairSamples sample_pair(const TandemPair& pair, DecodeOptions options = tandem_options("speculative", 2, 2));

// Returns a / b, rounded up.
inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace draftsmith::infer::testing
