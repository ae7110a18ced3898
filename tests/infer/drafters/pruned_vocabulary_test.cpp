// Drafters of a pruned vocabulary are lossless: token for token in greedy and assisted decoding with real models, and
// in distribution when sampling (the chi-square test of speculative_sampling_test.cpp: alarm 4.75, false with 1e-6).
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/forced/forced_alpha.h"
#include "model/pruning/pruning.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/models.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

constexpr int64_t kWholeVocabulary = 24;
constexpr int64_t kPrunedLimit = 16;

// Weights large enough that outputs vary; `noise` makes a drafter that is right now and then.
std::unique_ptr<model::TransformerModel> whole_model(double noise, bool encoder_decoder, int64_t vocabulary) {
  const model::ModelSizes sizes = {.vocabulary = vocabulary, .ff_width = 24};
  model::TransformerConfig config = encoder_decoder ? model::t5_config(sizes) : model::llama_config(sizes);
  config.tied_head = false;
  if (!encoder_decoder) config.bos = 0;
  config.initializer_range = 0.5;
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  std::mt19937_64 random(4), other(5);
  const auto uniform = [](std::mt19937_64& bits) { return static_cast<double>(bits() >> 11) * 0x1p-53 - 0.5; };
  for (const auto& [name, value] : made->parameters()) {
    if (value.dim() != 2) continue;
    at::Tensor weight = value.view(-1);
    const double scale = name.starts_with("head") ? 3 : name.starts_with("embedding") ? 0.5 : 2.5;
    for (int64_t i = 0; i < weight.numel(); ++i) weight[i] = scale * (uniform(random) + noise * uniform(other));
  }
  return made;
}

// The drafter with the even ids, pad and EOS.
std::unique_ptr<model::TransformerModel> pruned_drafter(bool encoder_decoder) {
  const auto whole = whole_model(0.2, encoder_decoder, kWholeVocabulary);
  std::vector<int64_t> counts(kWholeVocabulary, 0);
  for (size_t id = 0; id < counts.size(); id += 2) counts[id] = 1;
  return model::prune(*whole, {.vocabulary_from = "text"}, {.token_counts = counts, .unknown = 2});
}

const std::vector<Ids>& some_sources() {
  static const std::vector<Ids> kSome = {{5, 9, 14, 3, 1}, {7}, {2, 1}, {11, 12, 13, 20, 21, 8, 1}, {22}, {6, 17}};
  return kSome;
}

std::vector<Ids> decoded(model::LanguageModel& target, model::LanguageModel* drafter, const std::string& method,
                         int64_t batch, DecodeStats* total = nullptr) {
  DecodeOptions options;
  options.method = method;
  if (method == "speculative") options.temperature = 0;
  options.batch_size = batch;
  options.max_new_tokens = kPrunedLimit;
  GenerationModels models;
  models.target = &target;
  if (drafter != nullptr) models.drafter = as_drafter(*drafter);
  std::vector<Ids> ids;
  for (const GenerationResult& result : Generator(models, options).generate(some_sources())) {
    ids.push_back(result.ids);
    if (total == nullptr) continue;
    total->drafted += result.stats.drafted;
    total->accepted += result.stats.accepted;
  }
  return ids;
}

TEST(PrunedVocabulary, GreedyAndAssistedOutputsAreTheTargets) {
  for (const bool encoder_decoder : {true, false}) {
    const auto target = whole_model(0, encoder_decoder, kWholeVocabulary);
    const auto drafter = pruned_drafter(encoder_decoder);
    target->pack();
    drafter->pack();
    const auto expected = decoded(*target, nullptr, "greedy", 1);
    std::set<int64_t> seen;
    for (const Ids& ids : expected) seen.insert(ids.begin(), ids.end());
    EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), [](int64_t id) { return id > 2 && id % 2 == 1; }))
        << "outputs need ids that the drafter lacks";
    DecodeStats total;
    for (const char* method : {"speculative", "assisted"}) {
      for (const int64_t batch : {1, 2, 3, 6}) {
        EXPECT_EQ(decoded(*target, drafter.get(), method, batch, &total), expected) << method << ", batch " << batch;
      }
    }
    EXPECT_GT(total.accepted, 0);
    EXPECT_LT(total.accepted, total.drafted);
  }
}

TEST(PrunedVocabulary, ItProposesOnlyWhatItHas) {
  const auto drafter = pruned_drafter(true);
  for (const Ids& ids : decoded(*drafter, nullptr, "greedy", 3)) {
    for (const int64_t id : ids) EXPECT_TRUE(id % 2 == 0 || id == 1) << id;
  }
}

// An oracle of four ids as target, and as drafter a transformer with rows for ids 0, 1 and 3.
TEST(PrunedVocabulary, SamplesHaveTheTargetsDistribution) {
  const OracleFunction function = random_oracle(4, 1);
  OracleModel target(oracle_info(4), function);
  const auto whole = whole_model(0, true, 4);
  const auto drafter =
      model::prune(*whole, {.vocabulary_from = "text", .vocabulary_size = 3}, {.token_counts = {0, 0, 1, 2}});
  ASSERT_EQ(drafter->config().draft_vocabulary.ids, (Ids{0, 1, 3}));
  drafter->to(at::kCPU, at::kDouble);
  GenerationModels models;
  models.target = &target;
  models.drafter = as_drafter(*drafter);
  DecodeOptions options;
  options.method = "speculative";
  options.temperature = 1;
  options.max_new_tokens = 4;
  options.num_samples = 4096;
  options.batch_size = 1;
  const std::vector<Ids> source = {{2, 3}};
  for (const int64_t window : {1, 4}) {
    options.window = window;
    const auto results = Generator(models, options).generate(source);
    const auto expected = enumerate(function, source[0], {.temperature = 1}, 4);
    EXPECT_LT(chi_square_deviate(expected, count_sequences(results)), kAlarm) << "window " << window;
    int64_t accepted = 0;
    for (const auto& result : results) accepted += result.stats.accepted;
    EXPECT_GT(accepted, 500);
  }
}

// Alpha counts the probability of ids that the drafter lacks as 0.
TEST(PrunedVocabulary, AlphaIsMeasuredOverTheWholeVocabulary) {
  const auto target = whole_model(0, true, kWholeVocabulary);
  const auto drafter = pruned_drafter(true);
  const std::vector<Ids> outputs(some_sources().size(), Ids{4, 9, 6, 3});
  const ForcedAlpha alpha = measure_forced_alpha({*target, *drafter}, some_sources(), outputs, {.temperature = 1});
  EXPECT_GT(alpha.alpha, 0.05);
  EXPECT_LT(alpha.alpha, 0.95);
}

}  // namespace
}  // namespace draftsmith::infer::testing
