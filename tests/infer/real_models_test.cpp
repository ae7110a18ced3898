// Speculative decoding at temperature 0 and assisted generation equal greedy decoding, with real (random) T5 models,
// token for token. Drafters of a pruned vocabulary are lossless too, token for token and, when sampling, in
// distribution. Models of every family decode by all methods in fp32, with drafters that were made of them.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/files.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/registry.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/loop/decode_loop.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/shared_encoder.h"
#include "model/models/tandem.h"
#include "model/pruning/pruning.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/families.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

constexpr int64_t kModelIds = 24, kModelLimit = 18;

struct RandomModel {
  double noise = 0;  // perturbs all weights: the drafter is the target with noise, so that it is right now and then
  at::ScalarType dtype = at::kDouble;
  int64_t vocabulary = kModelIds;
};

// Weights large enough that outputs vary, EOS likelier than other tokens so that some outputs end early.
std::unique_ptr<model::TransformerModel> real_model(const RandomModel& wanted) {
  model::TransformerConfig config =
      model::t5_config({.vocabulary = wanted.vocabulary, .head_width = 6, .ff_width = 24});
  config.relative_buckets = 8;
  config.relative_max_distance = 12;
  config.eos = {1, 7, 22};
  std::erase_if(config.eos, [&](int64_t id) { return id >= wanted.vocabulary; });
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  made->requires_grad(false);
  make_lively(*made, 4, 1.7, 2.5, wanted.noise);
  made->to(at::kCPU, wanted.dtype);
  made->pack();
  return made;
}

struct RealPair {
  std::unique_ptr<model::TransformerModel> target, drafter;

  explicit RealPair(at::ScalarType dtype)
      : target(real_model({.dtype = dtype})), drafter(real_model({.noise = 0.25, .dtype = dtype})) {}

  std::vector<GenerationResult> run(const DecodeOptions& options, bool self = false) const {
    GenerationModels models{.target = target.get(), .drafter = as_drafter(self ? *target : *drafter)};
    return Generator(models, options).generate(sources());
  }
};

const RealPair& fp64() {
  static const RealPair kPair(at::kDouble);
  return kPair;
}

DecodeOptions options_of(const std::string& method, int64_t window = 5, int64_t batch = 1) {
  DecodeOptions options{.method = method};
  if (method == "speculative") options.temperature = 0;
  if (method != "greedy") options.window = window;
  options.batch_size = batch;
  options.max_new_tokens = kModelLimit;
  return options;
}

TEST(RealModels, SpeculativeAndAssistedEqualGreedyInDoublePrecision) {
  const auto expected = ids_of(fp64().run(options_of("greedy")));
  for (const char* method : {"speculative", "assisted"}) {
    DecodeStats sum;
    for (const int64_t window : {1, 2, 5, 12}) {
      for (int64_t batch = 1; batch <= 8; ++batch) {
        const auto results = fp64().run(options_of(method, window, batch));
        EXPECT_EQ(ids_of(results), expected) << method << " window " << window << " batch " << batch;
        sum += total(results);
      }
    }
    EXPECT_GT(sum.accepted, 0);
    EXPECT_LT(sum.accepted, sum.drafted);
  }
}

// The target drafts for itself, as far as the length limit lets it: every early end is an EOS inside a draft.
TEST(RealModels, EosInsideADraftEndsTheOutput) {
  const auto expected = ids_of(fp64().run(options_of("greedy")));
  for (const char* method : {"speculative", "assisted", "bild"}) {
    for (const int64_t batch : {1, 4, 9}) {
      DecodeOptions options = options_of(method, kModelLimit - 1, batch);
      options.window_rule = "fixed";
      options.verify_end = true;
      const auto results = fp64().run(options, true);
      EXPECT_EQ(ids_of(results), expected) << method << " batch " << batch;
      size_t early = 0;
      for (const auto& [ids, stats, error] : results) {
        if (static_cast<int64_t>(ids.size()) == kModelLimit) continue;
        ++early;
        EXPECT_EQ(stats.target_runs, 1) << method;
        EXPECT_EQ(stats.drafted, static_cast<int64_t>(ids.size())) << method;
        EXPECT_EQ(stats.cut, 1) << method;  // the target's token after the EOS
      }
      EXPECT_GE(early, 2u);
    }
  }
}

TEST(RealModels, DrafterWithFewerEmbeddingsThanTheTargetIsNeverAskedForTheOthers) {
  constexpr int64_t kFewer = 8;
  const auto expected = ids_of(fp64().run(options_of("greedy")));
  const bool feeds_others = std::any_of(expected.begin(), expected.end(), [](const Ids& ids) {
    return std::any_of(ids.begin(), ids.end(), [](int64_t id) { return id >= kFewer; });
  });
  ASSERT_TRUE(feeds_others);
  const auto small = real_model({.vocabulary = kFewer});
  for (const char* method : {"speculative", "assisted"}) {
    const DecodeOptions options = options_of(method, 4, 3);
    GenerationModels models{.target = fp64().target.get()};
    Generator generator(models, options, make_parts(options, std::make_unique<ModelDrafter>(*small, kModelIds)));
    EXPECT_EQ(ids_of(generator.generate(sources())), expected) << method;
  }
  const auto forced = measure_forced_alpha({*fp64().target, *small}, {sources(), expected}, {.temperature = 1});
  EXPECT_GT(forced.positions, 0);
  EXPECT_GE(forced.alpha, 0);
  EXPECT_LE(forced.alpha, 1);
}

constexpr int64_t kWholeVocabulary = 24;

// Weights large enough that outputs vary; `noise` makes a drafter that is right now and then.
std::unique_ptr<model::TransformerModel> whole_model(double noise, bool encoder_decoder) {
  const model::ModelSizes sizes = {.vocabulary = kWholeVocabulary, .ff_width = 24};
  model::TransformerConfig config = encoder_decoder ? model::t5_config(sizes) : model::llama_config(sizes);
  config.tied_head = false;
  if (!encoder_decoder) config.bos = 0;
  config.initializer_range = 0.5;
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  make_lively(*made, 4, 1, 2.5, noise);
  return made;
}

TEST(PrunedVocabulary, GreedyAndAssistedOutputsAreTheTargets) {
  const std::vector<Ids> texts = {{5, 9, 14, 3, 1}, {7}, {2, 1}, {11, 12, 13, 20, 21, 8, 1}, {22}, {6, 17}};
  std::vector<int64_t> counts(kWholeVocabulary, 0);  // of the even ids; pad and EOS stay as well
  for (size_t id = 0; id < counts.size(); id += 2) counts[id] = 1;
  for (const bool encoder_decoder : {true, false}) {
    const auto target = whole_model(0, encoder_decoder);
    const auto drafter = model::prune(*whole_model(0.2, encoder_decoder), {.vocabulary_from = "text"},
                                      {.token_counts = counts, .unknown = 2});
    target->pack();
    drafter->pack();
    const auto decoded = [&](model::TransformerModel& model, const char* method, int64_t batch) {
      GenerationModels models{.target = &model, .drafter = as_drafter(*drafter)};
      DecodeOptions options = options_of(method, 5, batch);
      options.max_new_tokens = 16;
      return Generator(models, options).generate(texts);
    };
    const auto expected = ids_of(decoded(*target, "greedy", 1));
    DecodeStats sum;
    for (const int64_t batch : {1, 2, 3, 6}) {
      const auto results = decoded(*target, "assisted", batch);
      EXPECT_EQ(ids_of(results), expected) << "batch " << batch;
      sum += total(results);
    }
    EXPECT_GT(sum.accepted, 0);
    EXPECT_LT(sum.accepted, sum.drafted);
    for (const Ids& ids : ids_of(decoded(*drafter, "greedy", 3))) {
      for (const int64_t id : ids) EXPECT_TRUE(id % 2 == 0 || id == 1) << id << " is not the drafter's";
    }
  }
}

// Writes directories of a family's model: the target, its first layers as a drafter of their own ("cut"), and drafters
// made of those that read the target's states ("tandem", and of encoder-decoders "shared").
void save_family(const model::Family& family, const std::filesystem::path& folder) {
  model::TransformerConfig config = model::tiny_of(family);
  if (family.name == "mistral") {
    config.window = 5;
    config.window_layers = {0, 1, 2};
  }
  model::TransformerModel target(config, 1);
  target.requires_grad(false);
  make_lively(target, 3, 1.5, 0.7);
  model::PruneOptions first_layers{.decoder_layers = "first:2"};
  if (config.encoder_decoder) first_layers.encoder_layers = "first:1";
  const auto cut = model::prune(target, first_layers);
  model::save_model(folder / "target", target);
  model::save_model(folder / "cut", *cut);
  model::save_tandem(folder / "tandem", *model::make_tandem_secondary(*cut, target),
                     {.primary_directory = folder / "target"});
  if (!config.encoder_decoder) return;
  model::save_with_companion(folder / "shared", *model::make_shared_encoder_drafter(*cut, target), folder / "target");
}

// A way to decode. The drafter is a directory of save_family(), or as the program names others.
struct FamilyWay {
  const char* method;
  const char* drafter = "";     // empty: none
  const char* acceptance = "";  // empty: the method's own
  bool lossless = true;
};

constexpr FamilyWay kFamilyWays[] = {{"speculative", "cut"},
                                     {"assisted", "cut"},
                                     {"bild", "cut", "", false},
                                     {"speculative", "exit:2"},
                                     {"assisted", "lookup:3"},
                                     {"tandem-speed", "tandem"},
                                     {"tandem", "tandem", "", false},
                                     {"speculative", "shared"},
                                     {"early-exit", "", "exact"},
                                     {"early-exit", "", "", false},
                                     {"ppd"},
                                     {"calm", "", "", false}};

// In fp32, as the program decodes. Lossy methods write something.
TEST(FamiliesDecode, ByAllMethodsWithDraftersMadeOfThem) {
  DecodeStats sum;
  for (const model::Family& family : model::families()) {
    const TemporaryDirectory folder;
    save_family(family, folder.path());
    const auto target = model::load_model(folder / "target");
    GenerationModels models{.target = target.get()};
    const auto sources_of_kind = exit_sources(*target);
    const auto expected = ids_of(Generator(models, exit_options("greedy")).generate(sources_of_kind));
    for (const FamilyWay& way : kFamilyWays) {
      SCOPED_TRACE(family.name + ": " + way.method + " " + way.drafter + " " + way.acceptance);
      const std::string name = way.drafter;
      if (name == "shared" && !target->info().encoder_decoder) continue;
      const bool directory = std::filesystem::exists(folder / name);
      models.drafter = name.empty() ? nullptr
                                    : load_drafter(parse_drafter(directory ? (folder / name).string() : name),
                                                   folder / "target", {});
      for (const int64_t batch : {1, 3}) {
        DecodeOptions options = exit_options(way.method, batch);
        options.acceptance = way.acceptance;
        const auto results = Generator(models, options).generate(sources_of_kind);
        throw_if_failed(results);
        if (way.lossless) {
          EXPECT_EQ(ids_of(results), expected) << "batch " << batch;
        }
        for (const Ids& ids : ids_of(results)) EXPECT_FALSE(ids.empty());
        sum += total(results);
      }
    }
  }
  EXPECT_GT(sum.accepted, 0);
  EXPECT_LT(sum.accepted, sum.drafted);
}

}  // namespace
}  // namespace draftsmith::infer::testing
