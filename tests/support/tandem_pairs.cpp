#include "tests/support/tandem_pairs.h"

#include <random>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/random_tensors.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/registry.h"
#include "infer/drafters/tandem_drafter.h"
#include "model/models/feature_drafter.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

constexpr int64_t kTandemLimit = 18;

double uniform(std::mt19937_64& bits) {
  return static_cast<double>(bits() >> 11) * 0x1p-53 - 0.5;
}

model::TransformerConfig primary_config(Kind kind, int64_t vocabulary) {
  model::TransformerConfig config = model::tiny_llama(3);
  if (kind == Kind::kEncoderDecoder) {
    config = model::t5_config({.head_width = 6, .ff_width = 24, .decoder_layers = 3});
    config.relative_buckets = 8;
    config.relative_max_distance = 12;
  }
  config.vocabulary = vocabulary;
  config.tied_head = false;
  return config;
}

std::unique_ptr<model::TransformerModel> lively_model(const model::TransformerConfig& config, uint64_t seed) {
  auto made = std::make_unique<model::TransformerModel>(config, seed);
  made->requires_grad(false);
  make_lively(*made, seed + 3, 1.7);
  made->to(at::kCPU, at::kDouble);
  return made;
}

model::TransformerConfig smaller_config(model::TransformerConfig config, Kind kind) {
  config.width = 10;
  config.heads = 3;
  config.kv_heads = kind == Kind::kDecoderOnly ? 1 : 0;
  config.ff_width = 12;
  config.encoder_layers = config.encoder_decoder ? 1 : 0;
  config.decoder_layers = 2;
  return config;
}

void add_noise(const model::TransformerModel& secondary, double noise) {
  const at::NoGradGuard no_gradients;
  std::mt19937_64 random(9);
  for (const auto& [name, value] : secondary.parameters()) {
    if (noise == 0 || value.dim() != 2) continue;
    at::Tensor weight = value.view(-1);
    for (int64_t i = 0; i < weight.numel(); ++i) weight[i] += noise * uniform(random);
  }
}

TandemPair packed(TandemPair pair) {
  pair.secondary->requires_grad(false);
  pair.secondary->pack();
  pair.primary->pack();
  return pair;
}

}  // namespace

void make_lively(const model::TransformerModel& made, uint64_t seed, double eos, double later, double noise) {
  std::mt19937_64 random(seed), other(seed + 1);
  for (const auto& [name, value] : made.parameters()) {
    if (value.dim() != 2) continue;
    const bool head = name.starts_with("head");
    const bool table = name.starts_with("embedding") || name.ends_with("positions.weight");
    const bool writes_hidden = name.ends_with(".output.weight") || name.ends_with(".down.weight");
    const bool follows = writes_hidden && name.starts_with("decoder.") && !name.starts_with("decoder.0.");
    const double scale = head ? 3 : table ? 0.5 : follows ? later : 2.5;
    at::Tensor weight = value.view(-1);
    for (int64_t i = 0; i < weight.numel(); ++i) weight[i] = scale * (uniform(random) + noise * uniform(other));
    if (head) value.select(0, made.config().eos.front()).mul_(eos);
  }
}

GenerationModels TandemPair::models() const {
  GenerationModels models{.target = primary.get()};
  if (secondary->config().reads_features()) {
    models.drafter = features_drafter(secondary);
    return models;
  }
  models.drafter = secondary->config().shares_encoder() ? shared_encoder_drafter(secondary) : tandem_drafter(secondary);
  return models;
}

std::vector<GenerationResult> TandemPair::run(const DecodeOptions& options) const {
  const bool encoder_decoder = primary->info().encoder_decoder;
  return Generator(models(), options)
      .generate(tandem_sources(encoder_decoder ? Kind::kEncoderDecoder : Kind::kDecoderOnly));
}

std::unique_ptr<model::TransformerModel> tandem_primary_model(Kind kind, int64_t vocabulary) {
  return lively_model(primary_config(kind, vocabulary), 1);
}

TandemPair identity_pair(Kind kind, double noise, int64_t vocabulary) {
  TandemPair pair{.primary = tandem_primary_model(kind, vocabulary)};
  pair.secondary = model::make_tandem_secondary(
      *pair.primary, *pair.primary, {.layer_map = {0, 1, 2}, .projections = model::ProjectionStart::kIdentity});
  add_noise(*pair.secondary, noise);
  return packed(std::move(pair));
}

TandemPair features_pair(Kind kind, int64_t vocabulary, bool block) {
  TandemPair pair{.primary = tandem_primary_model(kind, vocabulary)};
  pair.secondary =
      model::make_feature_drafter(*pair.primary, {.decoder_layers = 2, .block = block, .markov_rank = block ? 3 : 0});
  if (block) {
    const at::Tensor& next = pair.secondary->parameters().at("feature_markov.next.weight");
    next.add_(normal_tensor(next.sizes().vec(), 1, 3, "next", next.scalar_type()));
  }
  pair.secondary->requires_grad(false);
  return pair;
}

TandemPair identity_shared_encoder(double noise, int64_t vocabulary) {
  TandemPair pair{.primary = tandem_primary_model(Kind::kEncoderDecoder, vocabulary)};
  pair.secondary =
      model::make_shared_encoder_drafter(*pair.primary, *pair.primary, {model::ProjectionStart::kIdentity});
  add_noise(*pair.secondary, noise);
  return packed(std::move(pair));
}

TandemPair random_shared_encoder() {
  TandemPair pair{.primary = tandem_primary_model(Kind::kEncoderDecoder)};
  const auto small = lively_model(smaller_config(pair.primary->config(), Kind::kEncoderDecoder), 11);
  pair.secondary = model::make_shared_encoder_drafter(*small, *pair.primary);
  return packed(std::move(pair));
}

TandemPair random_pair(Kind kind) {
  TandemPair pair{.primary = tandem_primary_model(kind)};
  const auto small = lively_model(smaller_config(pair.primary->config(), kind), 11);
  pair.secondary = model::make_tandem_secondary(*small, *pair.primary, {.layer_map = {2, 0}, .block = 3});
  return packed(std::move(pair));
}

std::vector<std::vector<int64_t>> tandem_sources(Kind kind) {
  std::vector<std::vector<int64_t>> sources = {
      {5, 9, 14, 3, 1}, {7}, {2, 1}, {11, 12, 13, 20, 21, 8, 1}, {22}, {6, 6, 17}, {9, 4, 2, 16, 1}};
  sources.push_back(kind == Kind::kEncoderDecoder ? std::vector<int64_t>{} : std::vector<int64_t>(9, 3));
  return sources;
}

DecodeOptions tandem_options(const std::string& method, int64_t window, int64_t batch) {
  DecodeOptions options{.method = method, .temperature = 0};
  if (method != "greedy") options.window = window;
  options.batch_size = batch;
  options.max_new_tokens = kTandemLimit;
  return options;
}

void expect_lossless_otherwise(const TandemPair& pair, int64_t batch) {
  const auto expected = ids_of(pair.run(tandem_options("greedy")));
  for (const char* window : {"dynamic", "fallback"}) {
    DecodeOptions options = tandem_options("assisted", 3, batch);
    options.window_rule = window;
    options.confidence = 0.3;
    EXPECT_EQ(ids_of(pair.run(options)), expected) << window;
    options.lookup = 1;
    EXPECT_EQ(ids_of(pair.run(options)), expected) << window << " behind look-up";
  }
  for (const int64_t lookup : {1, 2}) {
    for (const int64_t rows : {int64_t{1}, batch}) {
      DecodeOptions options = tandem_options("speculative", 4, rows);
      options.lookup = lookup;
      const auto results = pair.run(options);
      EXPECT_EQ(ids_of(results), expected) << "look-up of " << lookup << ", batch " << rows;
      EXPECT_LT(total(results).draft_steps.logits, total(results).drafted);
    }
  }
  DecodeOptions literal = tandem_options("bild", 3, 3);
  literal.rollback = 0;
  literal.rollback_rule = "literal";
  literal.verify_end = true;
  EXPECT_EQ(ids_of(pair.run(literal)), expected);
}

PairSamples sample_pair(const TandemPair& pair, DecodeOptions options) {
  const std::vector<std::vector<int64_t>> sources = {{2, 3, 4}, {2, 3, 4}};
  options.temperature = 1;
  options.max_new_tokens = 3;
  options.num_samples = 4000;
  const auto results = Generator(pair.models(), options).generate(sources);
  const auto expected = enumerate_outputs(*pair.primary, sources[0], 3);
  return {chi_square_deviate(expected, count_sequences(results)), total(results)};
}

}  // namespace draftsmith::infer::testing
