// Work of whole decodings: against counts by hand, and against the products that LibTorch runs in decodings of small
// models (tests/support/product_counter.h), with every kind of drafter and method inside the model.
#include "infer/costs/decode_work.h"

#include <string>

#include <gtest/gtest.h>

#include "infer/loop/prefill.h"
#include "tests/infer/windows/window_fixtures.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/models.h"
#include "tests/support/product_counter.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

// t5_config(): a layer has 2,560 numbers in matrices and 48 in norms, the head 640 and 16 in the norm before it; a
// token's keys and values in both layers are 64 numbers.
TEST(DecodeWork, AddsUpStepsByHand) {
  const model::TransformerConfig config = model::t5_config();
  DecodeStats stats;
  stats.emitted = 3;
  // Two steps alone, one with another row: 1 token after 0, 3 after 1 with logits for all, 1 after 4.
  stats.target_steps.add({.share = 1, .before = 0});
  stats.target_steps.add({.share = 1, .before = 1, .tokens = 3, .logits = 3});
  stats.target_steps.add({.share = 0.5, .before = 4});
  EXPECT_EQ(stats.target_steps.keys, 1 + 4 + 5);
  EXPECT_EQ(stats.target_steps.pairs, 1 + (2 + 3 + 4) + 5);
  const DecodedLine line{.source = 5, .stats = &stats};
  const DecodeWork work = decode_work({.target = {&config, at::kFloat}}, {&line, 1});
  EXPECT_EQ(work.target.weight_bytes, 2.5 * 4 * 5872);
  EXPECT_EQ(work.target.cache_bytes, (10 + 3 * 5) * 4 * 64);
  EXPECT_EQ(work.target.operations, 2 * 5 * 5760 + 2 * 4 * 16 * (15 + 5 * 5));
  EXPECT_EQ(work.draft.operations, 0);
  const Work encoder = encoder_work(config, at::kFloat, 1, 5);
  const Work cross = cross_attention_work(config, at::kFloat, 1, 5);
  EXPECT_EQ(work.input.operations, encoder.operations + cross.operations);
  EXPECT_EQ(work.input.weight_bytes, encoder.weight_bytes + cross.weight_bytes);
  EXPECT_EQ(work.total().operations, work.input.operations + work.target.operations);
}

TEST(DecodeWork, LinesThatRunTogetherReadWeightsOnce) {
  const model::TransformerConfig config = model::t5_config();
  const DecodeStats none;
  const std::vector<DecodedLine> lines(4, {.source = 5, .stats = &none});
  const DecodeWork alone = decode_work({.target = {&config, at::kFloat}}, lines);
  const DecodeWork together = decode_work({.target = {&config, at::kFloat}, .sources_together = 4}, lines);
  EXPECT_EQ(together.input.weight_bytes, alone.input.weight_bytes / 4);
  EXPECT_EQ(together.input.operations, alone.input.operations);
}

const model::TransformerConfig& config_of(const model::LanguageModel& model) {
  return dynamic_cast<const model::TransformerModel&>(model).config();
}

// Decodings of some models, counted both ways.
struct BothCounts {
  Products run;
  Products expected;
  DecodeStats stats;
};

double attention_of(const DecodingShapes& shapes, const std::vector<DecodedLine>& lines);

BothCounts count_both(const GenerationModels& models, DecodeOptions options, std::vector<std::vector<int64_t>> sources,
                      DecodingShapes shapes) {
  BothCounts counts;
  std::erase_if(sources, [](const auto& source) { return source.empty(); });  // an encoder reads their padding
  options.batch_size = 1;
  Generator generator(models, options);
  std::vector<GenerationResult> results;
  {
    const ProductCounter counter;
    results = generator.generate(sources);
    counts.run = counter.products();
  }
  shapes.target = {&config_of(*models.target), at::kDouble};
  shapes.prompt_chunk = prefill_chunk(at::kCPU);
  if (models.drafter && models.drafter->transformer() != nullptr) {
    shapes.drafter = {&models.drafter->transformer()->config(), at::kDouble};
  }
  std::vector<DecodedLine> lines;
  for (size_t i = 0; i < sources.size(); ++i) lines.push_back({std::ssize(sources[i]), &results[i].stats});
  counts.expected.attention = attention_of(shapes, lines);
  counts.expected.weights = decode_work(shapes, lines).total().operations - counts.expected.attention;
  counts.stats = total(results);
  return counts;
}

// Returns the operations of attention: what is left of the work without any matrix of weights.
double attention_of(const DecodingShapes& shapes, const std::vector<DecodedLine>& lines) {
  double operations = 0;
  const auto add = [&](const ModelShape& shape, double layers, const StepCounts& steps, double source) {
    const double pairs = static_cast<double>(steps.pairs) + static_cast<double>(steps.tokens) * source;
    operations += layers * attention_operations(*shape.config, 1, pairs);
  };
  for (const DecodedLine& line : lines) {
    const model::TransformerConfig& target = *shapes.target.config;
    const auto tokens = static_cast<double>(line.source);
    const double source = target.encoder_decoder ? tokens : 0;
    const auto layers = static_cast<double>(target.decoder_layers);
    add(shapes.target, layers - static_cast<double>(shapes.drafter ? 0 : shapes.exit_layer), line.stats->target_steps,
        source);
    if (shapes.drafter) {
      add(*shapes.drafter, static_cast<double>(shapes.drafter->config->decoder_layers), line.stats->draft_steps,
          source);
    } else {
      add(shapes.target, static_cast<double>(shapes.exit_layer), line.stats->draft_steps, source);
    }
    for (const auto& shape : {std::optional(shapes.target), shapes.drafter}) {
      if (!shape || shape->config->tandem_secondary()) continue;
      if (shape->config->has_encoder()) {
        operations +=
            static_cast<double>(shape->config->encoder_layers) * attention_operations(*shape->config, tokens, tokens);
      } else if (!shape->config->encoder_decoder) {
        operations += static_cast<double>(shape->config->decoder_layers) *
                      attention_operations(*shape->config, 1, (tokens - 1) * tokens / 2);
      }
    }
  }
  return operations;
}

// The products with weights are the same to the last one. LibTorch also multiplies masked pairs, those of tokens that
// come after one in the same step: none where steps have one token.
void expect_same(const BothCounts& counts, const std::string& what) {
  EXPECT_DOUBLE_EQ(counts.run.weights, counts.expected.weights) << what;
  EXPECT_GE(counts.run.attention, counts.expected.attention) << what;
  EXPECT_GT(counts.stats.emitted, 0) << what;
}

TEST(DecodeWork, CountsTheProductsOfGreedyDecoding) {
  for (const char* family : {"t5", "mt5", "llama", "gpt2", "gpt_neox", "bloom"}) {
    const auto model = exit_model({.family = family});
    const BothCounts counts = count_both(exit_models(*model), exit_options("greedy"), exit_sources(*model), {});
    expect_same(counts, family);
    // One token a step, and prompts whole.
    if (model->config().encoder_decoder) {
      EXPECT_DOUBLE_EQ(counts.run.attention, counts.expected.attention) << family;
    }
  }
}

TEST(DecodeWork, CountsTheProductsOfDraftsAndVerifications) {
  const Pair pair;
  for (const char* method : {"assisted", "bild", "speculative"}) {
    DecodeOptions options = exit_options(method);
    options.temperature = 0;
    const BothCounts counts = count_both(pair.models(), options, sources(), {});
    expect_same(counts, method);
    EXPECT_GT(counts.stats.accepted, 0) << method;
    EXPECT_GT(counts.stats.drafted, counts.stats.accepted) << method;
  }
}

TEST(DecodeWork, CountsTheProductsOfExits) {
  for (const char* family : {"t5", "llama"}) {
    const auto model = exit_model({.family = family});
    for (const char* window : {"fallback", "fixed"}) {
      DecodeOptions options = exit_options("early-exit");
      options.window_rule = window;
      options.exit_layer = 2;
      const BothCounts counts =
          count_both(exit_models(*model), options, exit_sources(*model), {.target = {}, .exit_layer = 2});
      expect_same(counts, std::string(family) + " " + window);
      EXPECT_GT(counts.stats.drafted, 0);
    }
  }
}

// The secondary's products, and those of the projections that read the primary.
TEST(DecodeWork, CountsTheProductsOfTandems) {
  for (const Kind kind : kKinds) {
    const TandemPair pair = random_pair(kind);
    DecodeOptions options = exit_options("tandem-speed");
    options.temperature = 0;
    const BothCounts counts = count_both(pair.models(), options, exit_sources(*pair.primary), {});
    EXPECT_GT(counts.stats.drafted, 0);
    // The primary's representations of an output's last round are not needed, and are counted nevertheless.
    EXPECT_NEAR(counts.run.weights / counts.expected.weights, 1, 0.1);
    EXPECT_LE(counts.run.weights, counts.expected.weights);
  }
}

TEST(DecodeWork, CountsTheProductsOfTokensThatLeaveEarly) {
  const auto model = exit_model({.family = "t5"});
  DecodingShapes shapes{.target = {}, .algorithm = Algorithm::kCalm};
  for (const char* measure : {"saturation", "margin"}) {
    DecodeOptions options = exit_options("calm");
    options.exit_measure = measure;
    options.exit_threshold = 0.5;
    shapes.reads_each_layer = options.exit_measure == "margin";
    const BothCounts counts = count_both(exit_models(*model), options, exit_sources(*model), shapes);
    EXPECT_LT(counts.stats.average_exit_layer(), kExitLayers) << measure;
    // The sum, since attention takes the mean layer of exit.
    EXPECT_NEAR((counts.run.weights + counts.run.attention) / (counts.expected.weights + counts.expected.attention), 1,
                0.02)
        << measure;
  }
}

TEST(DecodeWork, CountsTheProductsOfPredictedTokens) {
  const auto model = exit_model({.family = "t5"});
  DecodeOptions options = exit_options("ppd");
  options.early_layer = 2;
  options.candidates = 3;
  const BothCounts counts = count_both(exit_models(*model), options, exit_sources(*model),
                                       {.target = {}, .exit_layer = 2, .algorithm = Algorithm::kPpd});
  EXPECT_GT(counts.stats.early_matches, 0);
  EXPECT_NEAR((counts.run.weights + counts.run.attention) / (counts.expected.weights + counts.expected.attention), 1,
              0.03);
}

}  // namespace
}  // namespace draftsmith::infer::testing
