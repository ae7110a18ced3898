// Speculative decoding at temperature 0 and assisted generation equal greedy decoding, with real (random) T5 models:
// token for token in fp64; in fp32 a difference is allowed only where the target's two best logits are closer than a
// step's rounding (methods.md §3).
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "infer/generator.h"
#include "infer/teacher_forcing.h"
#include "model/transformer_model.h"

namespace draftsmith::infer::testing {
namespace {

using Ids = std::vector<int64_t>;

constexpr int64_t kVocabulary = 24;
constexpr int64_t kLimit = 18;

// Weights large enough that outputs vary, EOS likelier than other tokens so that some outputs end early. `noise`
// perturbs all weights: the drafter is the target with noise, so that it is right now and then.
std::unique_ptr<model::TransformerModel> random_model(double noise, at::ScalarType dtype) {
  model::TransformerConfig config;
  config.family = "t5";
  config.vocabulary = kVocabulary;
  config.width = 16;
  config.heads = 2;
  config.head_width = 6;
  config.ff_width = 24;
  config.encoder_layers = 1;
  config.decoder_layers = 2;
  config.relative_buckets = 8;
  config.relative_max_distance = 12;
  config.tied_head = false;
  config.eos = {1, 7, 22};
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  made->requires_grad(false);
  std::mt19937_64 random(4);
  std::mt19937_64 other(5);
  const auto uniform = [](std::mt19937_64& bits) { return static_cast<double>(bits() >> 11) * 0x1p-53 - 0.5; };
  for (const auto& [name, value] : made->parameters()) {
    if (value.dim() != 2) continue;
    at::Tensor weight = value.view(-1);
    const double scale = name.starts_with("head") ? 3 : name.starts_with("embedding") ? 0.5 : 2.5;
    for (int64_t i = 0; i < weight.numel(); ++i) weight[i] = scale * (uniform(random) + noise * uniform(other));
    if (name.starts_with("head")) value.select(0, 1).mul_(1.7);
  }
  made->to(at::kCPU, dtype);
  made->pack();
  return made;
}

const std::vector<Ids>& sources() {
  static const std::vector<Ids> kSources = {
      {5, 9, 14, 3, 1}, {7}, {}, {2, 1}, {11, 12, 13, 20, 21, 8, 1}, {1}, {22}, {6, 6, 17}, {9, 4, 2, 16, 1}};
  return kSources;
}

struct Pair {
  std::unique_ptr<model::TransformerModel> target;
  std::unique_ptr<model::TransformerModel> drafter;

  explicit Pair(at::ScalarType dtype) : target(random_model(0, dtype)), drafter(random_model(0.25, dtype)) {}

  std::vector<GenerationResult> run(const DecodeOptions& options, bool self = false) const {
    GenerationModels models;
    models.target = target.get();
    models.drafter = self ? target.get() : drafter.get();
    return Generator(models, options).generate(sources());
  }
};

const Pair& fp64() {
  static const Pair kPair(at::kDouble);
  return kPair;
}

DecodeOptions options_of(const std::string& method, int64_t window = 5, int64_t batch = 1) {
  DecodeOptions options;
  options.method = method;
  if (method == "speculative") options.temperature = 0;
  if (method != "greedy") options.window = window;
  options.batch_size = batch;
  options.max_new_tokens = kLimit;
  return options;
}

std::vector<Ids> ids_of(const std::vector<GenerationResult>& results) {
  std::vector<Ids> ids;
  for (const auto& result : results) ids.push_back(result.ids);
  return ids;
}

TEST(RealModels, GreedyOutputsVaryAndSomeEndEarly) {
  const auto outputs = ids_of(fp64().run(options_of("greedy")));
  size_t early = 0;
  std::set<int64_t> seen;
  for (const Ids& ids : outputs) {
    early += ids.size() < static_cast<size_t>(kLimit) ? 1 : 0;
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_GE(early, 2u);
  EXPECT_LT(early, outputs.size());
  EXPECT_GE(seen.size(), 5u);
}

TEST(RealModels, SpeculativeAndAssistedEqualGreedyInDoublePrecision) {
  const auto expected = ids_of(fp64().run(options_of("greedy")));
  for (const char* method : {"speculative", "assisted"}) {
    for (int64_t window = 1; window <= 12; ++window) {
      for (const int64_t batch : {1, 3}) {
        EXPECT_EQ(ids_of(fp64().run(options_of(method, window, batch))), expected) << method << " " << window;
      }
    }
    for (int64_t batch = 1; batch <= 8; ++batch) {
      EXPECT_EQ(ids_of(fp64().run(options_of(method, 4, batch))), expected) << method << " batch " << batch;
    }
  }
}

TEST(RealModels, DraftsArePartlyRejected) {
  const DecodeStats stats = total(fp64().run(options_of("speculative", 4, 3)));
  EXPECT_GT(stats.accepted, 0);
  EXPECT_LT(stats.accepted, stats.drafted);
}

TEST(RealModels, GreedyDoesNotDependOnTheBatch) {
  const auto expected = ids_of(fp64().run(options_of("greedy")));
  for (int64_t batch = 2; batch <= 9; ++batch) {
    EXPECT_EQ(ids_of(fp64().run(options_of("greedy", 5, batch))), expected);
  }
}

TEST(RealModels, TargetAsItsOwnDrafterIsAlwaysAccepted) {
  for (const char* method : {"speculative", "assisted", "bild"}) {
    DecodeOptions options = options_of(method, 3, 4);
    options.window_rule = "fixed";
    const auto results = fp64().run(options, true);
    EXPECT_EQ(ids_of(results), ids_of(fp64().run(options_of("greedy"))));
    for (const auto& [ids, stats] : results) EXPECT_EQ(stats.accepted, stats.drafted) << method;
  }
}

TEST(RealModels, EveryWindowRuleEqualsGreedy) {
  const auto expected = ids_of(fp64().run(options_of("greedy")));
  DecodeOptions options = options_of("assisted", 6, 4);
  options.schedule = "constant";
  options.confidence = 0.4;
  EXPECT_EQ(ids_of(fp64().run(options)), expected);
  options.window_rule = "fallback";
  options.fallback = 0.5;
  EXPECT_EQ(ids_of(fp64().run(options)), expected);
}

TEST(RealModels, LengthLimitsOfOneTokenAndInsideAWindow) {
  for (int64_t limit = 1; limit <= 6; ++limit) {
    DecodeOptions greedy = options_of("greedy");
    greedy.max_new_tokens = limit;
    const auto expected = ids_of(fp64().run(greedy));
    for (const char* method : {"speculative", "assisted", "bild"}) {
      DecodeOptions options = options_of(method, 4, 3);
      options.max_new_tokens = limit;
      options.rollback = 0;
      options.rollback_rule = "literal";
      EXPECT_EQ(ids_of(fp64().run(options)), expected) << method << " limit " << limit;
    }
  }
}

TEST(RealModels, SamplesShareOneEncodingAndDoNotDependOnTheBatch) {
  DecodeOptions options = options_of("speculative", 3, 1);
  options.temperature = 1;
  options.num_samples = 4;
  const auto alone = ids_of(fp64().run(options));
  ASSERT_EQ(alone.size(), sources().size() * 4);
  EXPECT_NE(alone[0], alone[1]);
  options.batch_size = 5;
  EXPECT_EQ(ids_of(fp64().run(options)), alone);
}

// Difference of the target's two best logits for the token after `prefix`.
double margin(model::LanguageModel& target, const Ids& source, const Ids& prefix) {
  Ids forced = prefix;
  forced.push_back(0);
  const std::vector<Ids> one_source{source};
  const std::vector<Ids> one_output{forced};
  TeacherForcing forcing(target, {one_source, one_output});
  const auto best = std::get<0>(forcing.next(forcing.longest()).select(1, forcing.longest() - 1).topk(2));
  return (best.select(1, 0) - best.select(1, 1)).item<double>();
}

TEST(RealModels, SinglePrecisionDiffersOnlyWhereTheMarginIsWithinRounding) {
  const Pair fp32(at::kFloat);
  const auto expected = ids_of(fp32.run(options_of("greedy")));
  for (const char* method : {"speculative", "assisted"}) {
    for (const int64_t window : {1, 4, 9}) {
      const auto outputs = ids_of(fp32.run(options_of(method, window, 3)));
      for (size_t i = 0; i < outputs.size(); ++i) {
        const auto [ours, theirs] =
            std::mismatch(outputs[i].begin(), outputs[i].end(), expected[i].begin(), expected[i].end());
        if (ours == outputs[i].end() && theirs == expected[i].end()) continue;
        EXPECT_LT(margin(*fp32.target, sources()[i], {outputs[i].begin(), ours}), 2e-5) << method << " line " << i;
      }
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer::testing
