// Work of whole decodings: against counts by hand, and against the products that LibTorch runs in decodings of small
// models (tests/support/product_counter.h), with every kind of drafter and method inside the model.
#include "infer/costs/decode_work.h"

#include <string>

#include <gtest/gtest.h>

#include "infer/loop/rows.h"
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
  DecodeStats stats{.emitted = 3};
  stats.target_steps.window = 3;
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
  const Work encoder = encoder_work(config, at::kFloat, 5), cross = cross_attention_work(config, at::kFloat, 5);
  EXPECT_EQ(work.input.operations, encoder.operations + cross.operations);
  EXPECT_EQ(work.input.weight_bytes, encoder.weight_bytes + cross.weight_bytes);
  EXPECT_EQ(work.total().operations, work.input.operations + work.target.operations);

  // Of two layers the second has a window.
  EXPECT_EQ(stats.target_steps.window_keys, 1 + 4 + 3);
  EXPECT_EQ(stats.target_steps.window_pairs, 1 + (2 + 3 + 3) + 3);
  model::TransformerConfig windowed = model::llama_config();
  windowed.window = 3;
  windowed.window_layers = {1};
  const DecodeWork whole = decode_work({.target = {&windowed, at::kFloat}}, {&line, 1});
  EXPECT_EQ(whole.target.cache_bytes, (10 + 8) * 4 * 32);
  EXPECT_EQ(whole.target.attention, 4 * 16 * (15 + 12));
  EXPECT_EQ(whole.input.attention, 4 * 16 * ((1 + 2 + 3 + 4) + (1 + 2 + 3 + 3)));
  const DecodeWork above = decode_work({.target = {&windowed, at::kFloat}, .exit_layer = 1}, {&line, 1});
  EXPECT_EQ(above.target.cache_bytes, 8 * 4 * 32);
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

// Products of decodings, counted both ways.
struct BothCounts {
  Products run;
  double weights = 0;    // expected: products with weights
  double attention = 0;  // expected; of a prompt, one chunk, with the hidden keys
  DecodeStats stats;
};

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
  shapes.target = {&dynamic_cast<const model::TransformerModel&>(*models.target).config(), at::kDouble};
  shapes.prompt_chunk = prefill_chunk(at::kCPU);
  if (models.drafter && models.drafter->transformer() != nullptr) {
    shapes.drafter = {&models.drafter->transformer()->config(), at::kDouble};
  }
  const model::TransformerConfig& config = *shapes.target.config;
  std::vector<DecodedLine> lines;
  for (size_t i = 0; i < sources.size(); ++i) {
    lines.push_back({std::ssize(sources[i]), &results[i].stats});
    const auto prompt = static_cast<double>(config.encoder_decoder ? 0 : lines.back().source - 1);
    counts.attention +=
        4.0 * static_cast<double>(config.heads * config.head_width * config.decoder_layers) * prompt * (prompt - 1) / 2;
  }
  const Work work = decode_work(shapes, lines).total();
  counts.weights = work.operations - work.attention;
  counts.attention += work.attention;
  counts.stats = total(results);
  return counts;
}

TEST(DecodeWork, CountsTheProductsOfGreedyDecoding) {
  for (const char* family : {"t5", "mt5", "llama", "gpt2", "gpt_neox", "bloom"}) {
    const auto model = exit_model({.family = family});
    const BothCounts counts = count_both(exit_models(*model), exit_options("greedy"), exit_sources(*model), {});
    EXPECT_DOUBLE_EQ(counts.run.weights, counts.weights) << family;
    EXPECT_DOUBLE_EQ(counts.run.attention, counts.attention) << family;
    EXPECT_GT(counts.stats.emitted, 0) << family;
  }
}

TEST(DecodeWork, CountsTheProductsOfDraftsAndVerifications) {
  const Pair pair;
  for (const char* method : {"assisted", "bild", "speculative"}) {
    DecodeOptions options = exit_options(method);
    options.temperature = 0;
    const BothCounts counts = count_both(pair.models(), options, sources(), {});
    EXPECT_DOUBLE_EQ(counts.run.weights, counts.weights) << method;
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
      EXPECT_DOUBLE_EQ(counts.run.weights, counts.weights) << family << " " << window;
      EXPECT_GT(counts.stats.drafted, 0);
    }
  }
}

// The primary's representations of an output's last round are not needed, and are counted nevertheless.
TEST(DecodeWork, CountsTheProductsOfDraftersThatReadTheTarget) {
  for (const Kind kind : kKinds) {
    for (const int form : {0, 1, 2}) {
      SCOPED_TRACE(form);
      const TandemPair pair = form == 0 ? random_pair(kind) : features_pair(kind, 24, form == 2);
      DecodeOptions options = exit_options(form == 0 ? "tandem-speed" : "speculative");
      options.temperature = 0;
      const BothCounts counts = count_both(pair.models(), options, exit_sources(*pair.primary), {});
      EXPECT_GT(counts.stats.drafted, 0);
      EXPECT_LE(counts.run.weights, counts.weights);
      EXPECT_GT(counts.run.weights, 0.9 * counts.weights);
    }
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
    EXPECT_NEAR(counts.run.weights / counts.weights, 1, 1e-12) << measure;
  }
}

// The last token of an output has candidates too, of which the counts know nothing.
TEST(DecodeWork, CountsTheProductsOfPredictedTokens) {
  const auto model = exit_model({.family = "t5"});
  DecodeOptions options = exit_options("ppd");
  options.early_layer = 2;
  options.candidates = 3;
  const BothCounts counts = count_both(exit_models(*model), options, exit_sources(*model),
                                       {.target = {}, .exit_layer = 2, .algorithm = Algorithm::kPpd});
  EXPECT_GT(counts.stats.early_matches, 0);
  EXPECT_NEAR(counts.run.weights / counts.weights, 1, 0.01);
}

// A model that counts its own steps.
class CountingOracle final : public OracleModel {
 public:
  using OracleModel::OracleModel;

  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    double rows = 0;
    for (const int64_t tokens : input.new_tokens) rows += tokens > 0 ? 1 : 0;
    for (size_t b = 0; b < input.new_tokens.size(); ++b) {
      const int64_t tokens = input.new_tokens[b];
      if (tokens == 0) continue;
      const int64_t logits = input.logits == model::Logits::kAll ? tokens : 1;
      counts.add({.share = 1 / rows,
                  .before = state.length(static_cast<int64_t>(b)),
                  .tokens = tokens,
                  .logits = input.logits == model::Logits::kNone ? 0 : logits});
    }
    return OracleModel::step(input, state);
  }

  StepCounts counts;
};

void expect_same(const StepCounts& counted, const StepCounts& model, const std::string& what) {
  EXPECT_EQ(counted.steps, model.steps) << what;
  EXPECT_EQ(counted.tokens, model.tokens) << what;
  EXPECT_EQ(counted.logits, model.logits) << what;
  EXPECT_EQ(counted.keys, model.keys) << what;
  EXPECT_EQ(counted.pairs, model.pairs) << what;
  EXPECT_EQ(counted.window_keys, model.window_keys) << what;
  EXPECT_EQ(counted.window_pairs, model.window_pairs) << what;
  EXPECT_NEAR(counted.passes, model.passes, 1e-9) << what;
}

// Caches, pairs and shared steps, in batches too, whose rows draft and end at their own pace.
TEST(DecodeWork, StepsAreThoseOfTheModels) {
  const OracleFunction function = random_oracle(12, 3);
  for (const char* method : {"greedy", "assisted", "bild", "speculative"}) {
    for (const int64_t batch : {1, 3}) {
      model::ModelInfo info = oracle_info(12);
      info.window = 3;
      CountingOracle target(info, function);
      target.counts.window = info.window;
      CountingOracle drafter(oracle_info(12), mixture(function, random_oracle(12, 4), .5));
      GenerationModels models{.target = &target, .drafter = as_drafter(drafter)};
      const std::vector<Ids> sources{{2}, {3, 4}, {5, 6, 7}, {2, 9}, {8}};
      const DecodeStats stats = total(Generator(models, exit_options(method, batch)).generate(sources));
      const std::string what = std::string(method) + " in batches of " + std::to_string(batch);
      expect_same(stats.target_steps, target.counts, what);
      expect_same(stats.draft_steps, drafter.counts, what);
    }
  }
}

// In a decoder layer of t5_config(): 1024 numbers in self-attention's matrices, 512 in cross-attention's without keys
// and values, 1024 in the feed-forward layer's, 48 in norms. Two layers, 16 in the last norm, 640 in the head.
TEST(StepWork, AStepReadsDecoderAndHead) {
  const model::TransformerConfig config = model::t5_config();
  EXPECT_EQ(step_weight_bytes(config, at::kFloat), 4 * 5872);
  EXPECT_EQ(step_weight_bytes(config, at::kBFloat16), 2 * 5872);
  EXPECT_EQ(step_weight_bytes(config, at::kHalf), 2 * 5872 + 2 * 2 * 512);  // `wo` stays fp32
  // 5,760 numbers in matrices with 328 outputs, 112 in vectors.
  EXPECT_EQ(step_weight_bytes(config, at::kChar), 5760 + 4 * 328 + 4 * 112);
}

TEST(StepWork, AHeadThatIsTheEmbeddingIsRead) {
  model::TransformerConfig config = model::t5_config();
  const int64_t own = step_weight_bytes(config, at::kFloat);
  config.tied_head = true;
  EXPECT_EQ(step_weight_bytes(config, at::kFloat), own);
  config.draft_vocabulary.ids = {1, 5, 6};
  EXPECT_EQ(step_weight_bytes(config, at::kFloat), own - 4 * 37 * 16);
}

TEST(StepWork, CountsWhatComesBeforeTheFirstToken) {
  const model::TransformerConfig t5 = model::t5_config();
  const Work encoder = encoder_work(t5, at::kFloat, 5);
  EXPECT_EQ(encoder.weight_bytes, 4 * (2048 + 48));
  EXPECT_EQ(encoder.operations, 2 * 5 * 2048 + 4 * 5 * 5 * 16);
  const Work cross = cross_attention_work(t5, at::kFloat, 5);
  EXPECT_EQ(cross.weight_bytes, 4 * 1024);
  EXPECT_EQ(cross.operations, 2 * 5 * 1024);
  // 2,560 numbers in the matrices of a layer; of 5 tokens all but the last run, and token t sees t others.
  const model::TransformerConfig llama = model::llama_config();
  const DecodeStats none;
  const DecodedLine line{.source = 5, .stats = &none};
  EXPECT_EQ(decode_work({.target = {&llama, at::kFloat}}, {&line, 1}).input.operations,
            2 * 4 * 5120 + 2 * (4 * (1 + 2 + 3 + 4) * 16));
}

}  // namespace
}  // namespace draftsmith::infer::testing
