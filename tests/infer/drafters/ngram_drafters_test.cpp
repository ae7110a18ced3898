// Drafters without weights, n-gram tables and prompt look-up: what they propose, and that they change nothing of what
// the target puts out. Sampling is compared with the exact distribution as in acceptance/rules_test.cpp, with the same
// alarm.
#include <gmock/gmock.h>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "data/ngrams/ngram_table.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/registry.h"
#include "infer/forced/teacher_forcing.h"
#include "tests/support/distribution_tests.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

constexpr int64_t kTableIds = 4;

// A table of texts that a target like random_oracle(4, 1) might have written, and some that it would not.
data::NgramTable make_table(int64_t order, int64_t vocabulary = kTableIds) {
  const TemporaryDirectory directory;
  data::CorpusWriter writer(directory / "c.h5", {.tokenizer_hash = "abc", .vocabulary = vocabulary});
  for (uint64_t i = 0; i < 40; ++i) {
    const CounterRandom random(3, i);
    std::vector<int32_t> row;
    for (uint64_t j = 0; j < 5; ++j) {
      row.push_back(static_cast<int32_t>(random.bits(j) % static_cast<uint64_t>(vocabulary)));
    }
    row.push_back(kEos);
    writer.add({}, row);
  }
  writer.finish();
  data::build_ngram_table(directory / "c.h5", {.order = order}, directory / "n.h5");
  return data::NgramTable(directory / "n.h5");
}

// One of the drafters: a table, look-up, or none.
struct Source {
  const data::NgramTable* table = nullptr;
  int64_t lookup = 0;
};

GenerationModels models_drafting(model::LanguageModel& target, const Source& drafter) {
  GenerationModels models{.target = &target};
  if (drafter.table != nullptr) {
    models.drafter = as_drafter(std::shared_ptr<const data::NgramTable>(drafter.table, [](const auto*) {}));
  } else if (drafter.lookup > 0) {
    models.drafter = lookup_drafter(drafter.lookup);
  }
  return models;
}

// The drafter at work for a target of so many ids.
std::unique_ptr<Drafter> at_work(const Source& drafter, int64_t vocabulary) {
  OracleModel target(oracle_info(vocabulary), random_oracle(vocabulary, 1));
  return models_drafting(target, drafter).drafter->make({target});
}

void expect_kept_distribution(const Source& drafter, const DecodeOptions& options, const std::string& what) {
  const OracleFunction function = random_oracle(kTableIds, 1);
  OracleModel target(oracle_info(kTableIds), function);
  const auto results = Generator(models_drafting(target, drafter), options).generate(sampled_sources());
  EXPECT_LT(worst_deviate(function, options, results), kAlarm) << what;
  const DecodeStats stats = total(results);
  EXPECT_GT(stats.accepted, 0) << what;
  EXPECT_GT(stats.drafted, stats.accepted) << what;
}

TEST(NgramDrafters, SamplingKeepsTheTargetsDistribution) {
  for (const int64_t window : {1, 3, 8}) {
    for (const int64_t order : {1, 3}) {
      const data::NgramTable table = make_table(order);
      expect_kept_distribution({.table = &table}, sampling(0.7, window), "order " + std::to_string(order));
    }
    expect_kept_distribution({.lookup = 4}, sampling(1.5, window), "lookup, window " + std::to_string(window));
  }
}

// Sources and prompts of different lengths, so that rows leave their batch at different times.
const std::vector<Ids>& repeating_prompts() {
  static const std::vector<Ids> kPrompts = {{2, 3, 4, 2, 3}, {3},          {4, 4, 4, 4},    {2, 3, 2, 3, 2, 3},
                                            {5, 2},          {2, 2, 5, 3}, {5, 4, 3, 2, 0}, {3, 3, 4}};
  return kPrompts;
}

TEST(NgramDrafters, AssistedEqualsGreedyInEveryBatch) {
  constexpr int64_t kIds = 6;
  const data::NgramTable table = make_table(3, kIds);
  for (const bool encoder_decoder : {true, false}) {
    model::ModelInfo info = oracle_info(kIds);
    info.encoder_decoder = encoder_decoder;
    OracleModel target(info, random_oracle(kIds, 4, 2.5));
    DecodeOptions options{.max_new_tokens = 24};
    const auto greedy = ids_of(Generator(models_drafting(target, {}), options).generate(repeating_prompts()));
    options.method = "assisted";
    for (const Source& drafter : {Source{.table = &table}, Source{.lookup = 4}, Source{.lookup = 1}}) {
      for (int64_t batch = 1; batch <= 8; ++batch) {
        options.batch_size = batch;
        const auto results = Generator(models_drafting(target, drafter), options).generate(repeating_prompts());
        EXPECT_EQ(ids_of(results), greedy) << batch;
        const DecodeStats stats = total(results);
        EXPECT_EQ(stats.accepted + stats.verifications - stats.cut, stats.emitted);
        EXPECT_GT(stats.accepted, 0);
      }
    }
  }
}

TEST(NgramDrafters, ProposalsAreTheMostLikelyTokensOfTheLogits) {
  for (const int64_t order : {1, 2, 3}) {
    const data::NgramTable table = make_table(order);
    const auto drafter = at_work({.table = &table}, kTableIds + 2);
    for (const bool encoder_decoder : {true, false}) {
      model::ModelInfo info = oracle_info(kTableIds + 2);
      info.encoder_decoder = encoder_decoder;
      for (const Ids& tokens : {Ids{0}, Ids{0, 2}, Ids{0, 2, 3}, Ids{0, 5, 3}, Ids{0, 3, 5}}) {
        DrafterProbe probe(*drafter, info, {}, tokens);
        for (int64_t step = 0; step < 4; ++step) {
          const at::Tensor logits = probe.next_logits();
          const int64_t token = probe.next_token();
          EXPECT_FLOAT_EQ(logits[0][token].item<float>(), logits.max().item<float>());
          EXPECT_NEAR(logits.exp().sum().item<double>(), 1, 1e-5);
          EXPECT_EQ(logits.exp()[0][kTableIds].item<float>(), 0);
          probe.draft(token);
        }
      }
    }
  }
}

TEST(NgramDrafters, TheStartTokenIsTheBeginningAndAPromptIsText) {
  const data::NgramTable table = make_table(3);
  const auto drafter = at_work({.table = &table}, kTableIds);
  const auto logits = [&](bool encoder_decoder, const Ids& tokens) {
    model::ModelInfo info = oracle_info(kTableIds);
    info.encoder_decoder = encoder_decoder;
    return DrafterProbe(*drafter, info, {}, tokens).next_logits();
  };
  const auto expected = [&](const data::NgramContext& context) {
    std::vector<float> values(kTableIds);
    table.counts().log_probabilities(table.counts().find(context), values);
    return at::tensor(values).unsqueeze(0);
  };
  constexpr int64_t kBeginning = data::NgramContext::kBeginning;
  EXPECT_TRUE(at::equal(logits(true, {0}), expected({})));
  EXPECT_TRUE(at::equal(logits(true, {0, 2}), expected({kBeginning, 2})));
  EXPECT_TRUE(at::equal(logits(true, {0, 2, 3}), expected({2, 3})));
  EXPECT_TRUE(at::equal(logits(false, {3}), expected({kBeginning, 3})));
  EXPECT_TRUE(at::equal(logits(false, {0, 2}), expected({0, 2})));
}

// What look-up drafts in a window of `count`, until it has nothing to propose.
Ids looked_up(const Ids& source, const Ids& generated, int64_t longest = 4, int64_t count = 6) {
  const auto drafter = at_work({.lookup = longest}, 10);
  Ids tokens = {0};
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  DrafterProbe probe(*drafter, oracle_info(10), source, tokens);
  Ids drafted;
  for (int64_t i = 0; i < count; ++i) {
    drafted.push_back(probe.next_token());
    if (drafted.back() == kNoProposal) break;
    probe.draft(drafted.back());
  }
  return drafted;
}

TEST(PromptLookup, CopiesWhatFollowedTheLongestSuffixsLastOccurrence) {
  EXPECT_THAT(looked_up({4, 5, 6, 7, 8}, {5, 6}), ElementsAre(7, 8, kNoProposal));
  EXPECT_THAT(looked_up({4, 5, 6, 7, 8, 5, 6, 9}, {5, 6}), ElementsAre(9, kNoProposal));                 // the last
  EXPECT_THAT(looked_up({3, 5, 6, 7, 8, 5, 6, 9}, {3, 5, 6}), ElementsAre(7, 8, 5, 6, 9, kNoProposal));  // the longest
  EXPECT_THAT(looked_up({3, 5, 6, 7, 5, 6, 9}, {3, 5, 6}, 2), ElementsAre(9, kNoProposal));  // of at most two
  EXPECT_THAT(looked_up({9, 9}, {5, 6, 7, 2, 5, 6}), ElementsAre(7, 2, 5, 6, 7, 2));         // in its own output
  EXPECT_THAT(looked_up({2, 9}, {5, 2, 3, 2}), ElementsAre(3, 2, 3, 2, 3, 2));               // on into its own draft
}

TEST(PromptLookup, ProposesNothingWhereNothingMatches) {
  EXPECT_THAT(looked_up({4, 5}, {6}), ElementsAre(kNoProposal));
  EXPECT_THAT(looked_up({4, 5}, {}), ElementsAre(kNoProposal));
  EXPECT_THAT(looked_up({}, {}), ElementsAre(kNoProposal));
  EXPECT_THAT(looked_up({4, 5}, {7, 5}), ElementsAre(kNoProposal));     // the source ends there
  EXPECT_THAT(looked_up({4, 5}, {6, 4, 5}), ElementsAre(kNoProposal));  // and so does its longer suffix
}

TEST(PromptLookup, RejectedDraftsLeaveNoTrace) {
  const auto drafter = at_work({.lookup = 4}, 10);
  DrafterProbe probe(*drafter, oracle_info(10), {4, 5, 6, 7}, {0, 4});
  EXPECT_EQ(probe.next_token(), 5);
  probe.draft(5);
  EXPECT_EQ(probe.next_token(), 6);
  probe.draft(6);
  probe.forget_draft();
  probe.commit(8);
  EXPECT_EQ(probe.next_token(), kNoProposal);
  probe.commit(6);
  EXPECT_EQ(probe.next_token(), 7);
  probe.commit(5);
  EXPECT_EQ(probe.next_token(), 6);  // 6 followed 5 in the source alone
}

// The token that look-up proposes first, by looking everywhere.
int64_t searched(const std::vector<Ids>& texts, int64_t longest) {
  const Ids& current = texts.back();
  for (int64_t n = std::min(longest, std::ssize(current)); n >= 1; --n) {
    const Ids suffix(current.end() - n, current.end());
    int64_t found = kNoProposal;
    for (const Ids& text : texts) {
      for (int64_t at = 0; at + n < std::ssize(text); ++at) {
        if (std::equal(suffix.begin(), suffix.end(), text.begin() + at)) found = text[static_cast<size_t>(at + n)];
      }
    }
    if (found != kNoProposal) return found;
  }
  return kNoProposal;
}

TEST(PromptLookup, FindsWhatASearchOfTheWholeTextFinds) {
  for (uint64_t trial = 0; trial < 30; ++trial) {
    const CounterRandom random(7, trial);
    std::vector<Ids> texts(2);
    for (uint64_t i = 0; i < 120; ++i) {
      texts[i < 50 ? 0 : 1].push_back(static_cast<int64_t>(random.bits(i) % (2 + trial % 8)));
      const auto longest = static_cast<int64_t>(1 + trial % 5);
      if (i < 50) continue;
      ASSERT_EQ(looked_up(texts[0], texts[1], longest, 1), Ids{searched(texts, longest)}) << trial;
    }
  }
}

// ---- Look-up before another drafter

// A target that never puts out tokens in `pruned`, and a model that resembles it.
Case resembling_pair(int64_t vocabulary, bool encoder_decoder = true, const Ids& pruned = {}) {
  const OracleFunction target = random_oracle(vocabulary, 4, 2.5, pruned);
  return {.target = target,
          .drafter = mixture(target, random_oracle(vocabulary, 5, 2.5), 0.3),
          .vocabulary = vocabulary,
          .encoder_decoder = encoder_decoder};
}

TEST(LookupBeforeADrafter, WritesWhatGreedyDecodingWritesInEveryBatch) {
  for (const bool encoder_decoder : {true, false}) {
    const Case pair = resembling_pair(6, encoder_decoder, {kEos});
    DecodeOptions options{.max_new_tokens = 24};
    const auto decoded = [&] { return decode(pair, options, repeating_prompts()); };
    for (const bool processed : {false, true}) {
      options.method = "greedy";
      options.repetition_penalty = processed ? 1.5 : 1.0;
      if (encoder_decoder) options.no_repeat_ngram_size = processed ? 3 : 0;  // forbids copies of the output
      const auto greedy = ids_of(decoded());
      options.method = "speculative";
      options.temperature = 0;
      for (int64_t batch = 1; batch <= 8; ++batch) {
        options.batch_size = batch;
        options.lookup = 0;
        const DecodeStats alone = total(decoded());
        options.lookup = 1 + batch % 2;
        const auto results = decoded();
        EXPECT_EQ(ids_of(results), greedy) << batch;
        const DecodeStats stats = total(results);
        EXPECT_LT(stats.draft_runs, alone.draft_runs) << "copies are no runs";
        EXPECT_NEAR(stats.draft_steps.passes, std::round(stats.draft_steps.passes), 1e-9) << "shares of whole steps";
        EXPECT_GT(stats.drafted, stats.draft_runs);
        EXPECT_EQ(stats.accepted + stats.verifications - stats.cut, stats.emitted);
      }
      options.batch_size.reset();
      options.lookup = 0;
    }
  }
}

TEST(LookupBeforeADrafter, ATableProposesWhereNothingIsCopied) {
  constexpr int64_t kIds = 6;
  const data::NgramTable table = make_table(3, kIds);
  OracleModel target(oracle_info(kIds), random_oracle(kIds, 4, 2.5, {kEos}));
  DecodeOptions options{.max_new_tokens = 24};
  const auto greedy = ids_of(Generator(models_drafting(target, {}), options).generate(repeating_prompts()));
  options.method = "assisted";
  options.lookup = 2;
  for (const int64_t batch : {1, 3, 8}) {
    options.batch_size = batch;
    const auto results = Generator(models_drafting(target, {.table = &table}), options).generate(repeating_prompts());
    EXPECT_EQ(ids_of(results), greedy) << batch;
    EXPECT_GT(total(results).draft_runs, 0);
    EXPECT_LT(total(results).draft_runs, total(results).drafted);
  }
}

TEST(LookupBeforeADrafter, SamplingKeepsTheTargetsDistribution) {
  const Case pair = resembling_pair(kTableIds);
  for (const char* acceptance : {"rejection", "block"}) {
    for (const int64_t batch : {1, 50}) {
      DecodeOptions options = sampling(1.2, 3);
      options.lookup = 1;
      options.acceptance = acceptance;
      options.batch_size = batch;
      options.top_k = batch > 1 ? 3 : 0;
      const auto results = decode(pair, options, sampled_sources());
      EXPECT_LT(worst_deviate(pair.target, options, results), kAlarm) << acceptance << " " << batch;
      EXPECT_GT(total(results).drafted, total(results).draft_runs) << "some are copies";
    }
  }
}

TEST(LookupBeforeADrafter, WhatDoesNotFitIsRefused) {
  const Case pair = resembling_pair(6, false);
  DecodeOptions options{.method = "speculative", .lookup = 2, .temperature = 0};
  const auto message = [&] { return error_of([&] { decode(pair, options, repeating_prompts()); }); };
  EXPECT_EQ(message(), "no error");
  options.no_repeat_ngram_size = 3;
  EXPECT_THAT(message(), AllOf(HasSubstr("no_repeat_ngram_size 3"), HasSubstr("leave lookup out")));
  options.no_repeat_ngram_size = 6;
  EXPECT_EQ(message(), "no error");
  OracleModel target(oracle_info(kTableIds), random_oracle(kTableIds, 1));
  EXPECT_THAT(error_of([&] { Generator(models_drafting(target, {.lookup = 4}), options); }),
              HasSubstr("this drafter is look-up itself"));
  options = {.method = "bild", .lookup = 2};
  EXPECT_EQ(options.copied_behind(), 0) << "BiLD keeps tokens that nobody verifies";
}

TEST(NgramDrafters, MethodsThatNeedConfidenceRefuseLookup) {
  OracleModel target(oracle_info(kTableIds), random_oracle(kTableIds, 1));
  const auto message = [&](const DecodeOptions& options) {
    return error_of([&] { Generator(models_drafting(target, {.lookup = 4}), options); });
  };
  DecodeOptions options{.method = "bild"};
  EXPECT_THAT(message(options), AllOf(HasSubstr("drafter lookup, window fallback"), HasSubstr("unsure"),
                                      HasSubstr("use the window fixed")));
  options.window_rule = "fixed";
  EXPECT_EQ(message(options), "no error");
  options = {.method = "assisted"};
  EXPECT_EQ(message(options), "no error");
  options.confidence = 0.4;
  EXPECT_THAT(message(options), HasSubstr("window dynamic"));
}

TEST(NgramDrafters, TablesOfOtherTokenizersAreRefused) {
  const data::NgramTable table = make_table(2);
  OracleModel target(oracle_info(kTableIds), random_oracle(kTableIds, 1));
  const DecodeOptions options{.method = "assisted"};
  GenerationModels models = models_drafting(target, {.table = &table});
  const Pieces same(kTableIds, "abc"), other(kTableIds, "def");
  models.target_tokenizer = &same;
  EXPECT_EQ(error_of([&] { Generator(models, options); }), "no error");
  models.target_tokenizer = &other;
  EXPECT_THAT(error_of([&] { Generator(models, options); }), AllOf(HasSubstr("another tokenizer"), HasSubstr("def")));
  OracleModel smaller(oracle_info(3), random_oracle(3, 1));
  EXPECT_THAT(error_of([&] { Generator(models_drafting(smaller, {.table = &table}), options); }),
              HasSubstr("more token ids than the target"));
}

TEST(NgramDrafters, ForcedAlphaIsThatOfAModelWithTheTablesDistribution) {
  const data::NgramTable table = make_table(3);
  const OracleFunction same_as_table = [&](std::span<const int64_t>, std::span<const int64_t> prefix) {
    data::NgramContext context;
    if (!prefix.empty()) context.last = prefix.back();
    if (prefix.size() > 1) context.before = prefix[prefix.size() - 2];
    const data::NgramNodes nodes = table.counts().find(context);
    std::vector<double> q;
    for (int64_t token = 0; token < kTableIds; ++token) q.push_back(table.counts().probability(nodes, token));
    return q;
  };
  OracleModel target(oracle_info(kTableIds), random_oracle(kTableIds, 1));
  OracleModel drafter(oracle_info(kTableIds), same_as_table);
  const std::vector<Ids> outputs = {{2, 3, 2, 1}, {3, 1}, {}, {0, 0, 2, 3}};
  for (const Warping& warping : {Warping{}, Warping{.temperature = 0}, Warping{.temperature = 0.7, .top_k = 2}}) {
    const auto ngrams = at_work({.table = &table}, kTableIds);
    const ForcedAlpha expected = measure_forced_alpha({target, drafter}, {sampled_sources(), outputs}, warping);
    const ForcedAlpha found = measure_forced_alpha(target, *ngrams, {sampled_sources(), outputs}, warping);
    EXPECT_EQ(found.positions, expected.positions);
    EXPECT_NEAR(found.alpha, expected.alpha, 1e-6);
    EXPECT_DOUBLE_EQ(found.agreement, expected.agreement);
    EXPECT_DOUBLE_EQ(found.drafter.accuracy, expected.drafter.accuracy);
    EXPECT_NEAR(found.target.cross_entropy, expected.target.cross_entropy, 1e-9);
  }
  const auto lookup = at_work({.lookup = 4}, kTableIds);
  const ForcedAlpha copied = measure_forced_alpha(target, *lookup, {sampled_sources(), outputs}, {});
  EXPECT_EQ(copied.positions, 10);
  EXPECT_GT(copied.alpha, 0);
  EXPECT_TRUE(std::isnan(copied.drafter.cross_entropy)) << "it gives no distribution";
}

}  // namespace
}  // namespace draftsmith::infer::testing
