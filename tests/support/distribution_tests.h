// Helpers of tests of sampled distributions: sources and options of short outputs that can all be enumerated, the
// deviate of samples from the exact distribution, and a rule that such a test must find.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "infer/loop/decode_loop.h"
#include "infer/windows/window_rules.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/batches.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {

// A deviate that samples of the right distribution exceed with probability 1e-6.
constexpr double kAlarm = 4.75;

// Returns four sources of different lengths.
inline const std::vector<Ids>& sampled_sources() {
  static const std::vector<Ids> kShort = {{2, 3}, {}, {3}, {2, 2, 3, 1}};
  return kShort;
}

// Returns options of 2,048 samples of up to four tokens for each source.
inline DecodeOptions sampling(double temperature, int64_t window, int64_t batch = 4) {
  DecodeOptions options{.window = window, .max_new_tokens = 4, .num_samples = 2048, .batch_size = batch};
  options.method = "speculative";
  options.temperature = temperature;
  return options;
}

// Returns the largest deviate over sampled_sources().
inline double worst_deviate(const OracleFunction& target, const DecodeOptions& options,
                            std::span<const GenerationResult> results) {
  const Warping warping{*options.temperature, options.top_k.value_or(0), options.top_p.value_or(1),
                        options.min_p.value_or(0)};
  const auto samples = static_cast<size_t>(options.num_samples);
  double worst = -10;
  for (size_t line = 0; line < sampled_sources().size(); ++line) {
    const auto expected = enumerate(target, sampled_sources()[line], warping, *options.max_new_tokens);
    worst = std::max(worst, chi_square_deviate(expected, count_sequences(results.subspan(line * samples, samples))));
  }
  return worst;
}

// A drafter that resembles its target.
inline Case resembling_case() {
  return {random_oracle(4, 1), mixture(random_oracle(4, 1), random_oracle(4, 2), 0.6)};
}

inline void expect_targets_distribution(const Case& oracles, const DecodeOptions& options, const std::string& what) {
  const auto results = decode(oracles, options, sampled_sources());
  EXPECT_LT(worst_deviate(oracles.target, options, results), kAlarm) << what;
}

// Expects the target's distribution of these options with every window rule that adapts.
inline void expect_every_window_rule_keeps_the_distribution(DecodeOptions options) {
  for (const char* schedule : {"heuristic", "constant"}) {
    options.window_rule = "dynamic";
    options.schedule = schedule;
    expect_targets_distribution(resembling_case(), options, schedule);
  }
  options.window_rule = "fallback";
  for (const double threshold : {0.0, 0.45, 0.6, 1.1}) {
    options.fallback = threshold;
    expect_targets_distribution(resembling_case(), options, "fallback " + std::to_string(threshold));
  }
}

// Returns the deviate of a rule's outputs with the resembling drafter and windows of three tokens.
inline double deviate_of(std::unique_ptr<AcceptanceRule> rule) {
  const Case oracles = resembling_case();
  OracleModel target(oracle_info(4), oracles.target), drafter(oracle_info(4), oracles.drafter);
  const DecodeOptions options = sampling(1.0, 3);
  DraftParts parts{std::make_unique<ModelDrafter>(drafter, 4), std::make_unique<FixedWindow>(3), std::move(rule)};
  Generator generator({.target = &target, .drafter = nullptr, .generation = {}}, options, std::move(parts));
  return worst_deviate(oracles.target, options, generator.generate(sampled_sources()));
}

// Returns the probability of every output of up to `limit` tokens, from the model's own logits. `prompt` is the source
// of an encoder-decoder.
inline std::map<Ids, double> enumerate_outputs(model::TransformerModel& model, const Ids& prompt, int64_t limit,
                                               const Warping& warping = {.temperature = 1}) {
  const OracleFunction next = [&](std::span<const int64_t> start, std::span<const int64_t> prefix) {
    const model::ModelInfo& info = model.info();
    const Ids given(start.begin(), start.end());
    const at::Tensor source = at::tensor(given, at::kLong).unsqueeze(0);
    auto state =
        info.encoder_decoder ? model.begin(model.encode({source, {std::ssize(given)}}), 32) : model.begin(1, 32);
    Ids tokens = info.encoder_decoder ? Ids{info.decoder_start} : given;
    tokens.insert(tokens.end(), prefix.begin(), prefix.end());
    const auto p = model.step(model::step_input({tokens}), *state).logits[0][-1].softmax(0).contiguous();
    return std::vector<double>(p.const_data_ptr<double>(), p.const_data_ptr<double>() + p.numel());
  };
  return enumerate(next, prompt, warping, limit);
}

// A wrong rule: accepts more tokens than it may, since it takes the drafter's probabilities for `share` of what they
// are.
class TooGenerous : public RejectionAcceptance {
 public:
  explicit TooGenerous(double share) : share_(share) {}
  Judgement judge(const Verification& verification) override {
    Verification flattered = verification;
    for (at::Tensor& q : flattered.probabilities) q = q * share_;
    return RejectionAcceptance::judge(flattered);
  }

 private:
  double share_;
};

}  // namespace draftsmith::infer::testing
