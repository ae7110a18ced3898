// Tandem pairs of one tokenizer whose vocabularies are padded to different sizes, as Pythia's are.
#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/drafters/tandem_loading.h"
#include "infer/forced/alpha_sums.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/sampling/warping.h"
#include "model/kinds/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokens = 24;
constexpr int64_t kPadded = 30;

// The model with further ids, whose logits would often be the largest.
std::unique_ptr<model::TransformerModel> with_padding(const model::TransformerModel& model) {
  model::TransformerConfig config = model.config();
  config.vocabulary = kPadded;
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, value] : model.parameters()) {
    const bool rows = name.starts_with("embedding") || name.starts_with("head");
    parameters[name] =
        rows && value.size(0) == kTokens ? at::cat({value, 3 * value.narrow(0, 5, kPadded - kTokens)}) : value.clone();
  }
  auto padded = std::make_unique<model::TransformerModel>(config, std::move(parameters));
  padded->requires_grad(false);
  return padded;
}

// The secondary is the primary itself but for padding.
TandemPair padded_pair(Kind kind, bool larger_primary) {
  const auto plain = tandem_primary_model(kind, kTokens);
  TandemPair pair;
  pair.primary = larger_primary ? with_padding(*plain) : tandem_primary_model(kind, kTokens);
  const auto ordinary = larger_primary ? tandem_primary_model(kind, kTokens) : with_padding(*plain);
  pair.secondary = model::make_tandem_secondary(
      *ordinary, *pair.primary, {.layer_map = {0, 1, 2}, .projections = model::ProjectionStart::kIdentity});
  pair.secondary->requires_grad(false);
  pair.secondary->pack();
  pair.primary->pack();
  return pair;
}

GenerationModels models_with(const TandemPair& pair, const data::Tokenizer* tokenizer) {
  GenerationModels models = pair.models();
  models.drafter = tandem_drafter(pair.secondary, tokenizer);
  models.target_tokenizer = tokenizer;
  return models;
}

TEST(TandemPadding, PairsDecodeAsThoseOfOneSize) {
  const Pieces tokenizer(kTokens);
  for (const Kind kind : kKinds) {
    const auto expected = ids_of(identity_pair(kind).run(tandem_options("greedy")));
    for (const bool larger_primary : {true, false}) {
      SCOPED_TRACE(larger_primary);
      const TandemPair pair = padded_pair(kind, larger_primary);
      const auto results =
          Generator(models_with(pair, &tokenizer), tandem_options("tandem-speed", 3, 3)).generate(tandem_sources(kind));
      EXPECT_EQ(ids_of(results), expected);
      EXPECT_EQ(total(results).accepted, total(results).drafted);
      for (const bool free_token : {true, false}) {
        DecodeOptions alone = tandem_options("tandem", 3, 3);
        alone.free_token = free_token;
        EXPECT_EQ(ids_of(Generator(models_with(pair, &tokenizer), alone).generate(tandem_sources(kind))), expected);
      }
      DecodeOptions sampling = tandem_options("tandem-speed", 3, 3);
      sampling.temperature = 1;
      const auto sampled = Generator(models_with(pair, &tokenizer), sampling).generate(tandem_sources(kind));
      EXPECT_EQ(total(sampled).accepted, total(sampled).drafted);  // q = p
      for (const Ids& ids : ids_of(sampled))
        EXPECT_TRUE(std::ranges::all_of(ids, [](int64_t id) { return id < kTokens; }));
    }
  }
}

TEST(TandemPadding, AlphaIsOverTheTargetsIds) {
  const Pieces tokenizer(kTokens);
  for (const Kind kind : kKinds) {
    const TandemPair pair = padded_pair(kind, false);
    const GenerationModels models = models_with(pair, &tokenizer);
    const auto sources = tandem_sources(kind);
    std::vector<std::vector<int64_t>> outputs;
    for (const Ids& ids : ids_of(Generator(models, tandem_options("greedy")).generate(sources))) outputs.push_back(ids);
    const ForcedAlpha alpha = models.drafter->forced_alpha(models.draft_target(), {sources, outputs, {}}, {1, 0, 1}, 2);
    EXPECT_NEAR(alpha.alpha, 1, 1e-9);
  }
}

TEST(TandemPadding, WithoutTokenizersTheSizesMustAgree) {
  const TandemPair pair = padded_pair(Kind::kDecoderOnly, true);
  const Pieces tokenizer(kTokens), other(kTokens + 1, "other");
  const auto error = [&](const data::Tokenizer* of_target, const data::Tokenizer* of_secondary) {
    GenerationModels models = models_with(pair, of_secondary);
    models.target_tokenizer = of_target;
    return error_of([&] { Generator(models, tandem_options("tandem-speed")); });
  };
  EXPECT_THAT(error(nullptr, nullptr), HasSubstr("vocabularies of different sizes"));
  EXPECT_THAT(error(&tokenizer, &other), HasSubstr("different pieces"));
  EXPECT_EQ(error(&tokenizer, &tokenizer), "no error");
}

}  // namespace
}  // namespace draftsmith::infer::testing
