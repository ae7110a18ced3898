// The dynamic window of assisted generation, within a text and across texts.
#include "infer/windows/dynamic.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/parts.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

using enum WindowSchedule;

TEST(DynamicWindow, HeuristicGrowsByTwoAndShrinksByOneForEachRow) {
  for (const WindowSchedule schedule : {kHeuristic, kHeuristicTransient}) {
    DynamicWindow window({.initial = 5, .schedule = schedule});
    window.begin(std::vector<Row>(2));
    window.observe(0, {.drafted = 5, .accepted = 5});
    window.observe(1, {.drafted = 5, .accepted = 4});
    EXPECT_EQ(window.length(0), 7);
    EXPECT_EQ(window.length(1), 4);
    for (int i = 0; i < 9; ++i) window.observe(1, {.drafted = 4, .accepted = 0});
    EXPECT_EQ(window.length(1), 1);
    const std::vector<int64_t> kept = {1};
    window.select_rows(kept);
    EXPECT_EQ(window.length(0), 1);
  }
}

TEST(DynamicWindow, ConfidenceStopKeepsTheTokenItStopsAt) {
  // The drafter gives its tokens .35 < .4: each window holds exactly that one token.
  const Case oracles{constant_oracle({0.35, 0, 0.33, 0.32}), constant_oracle({0.35, 0, 0.33, 0.32})};
  DecodeOptions options;
  options.method = "assisted";
  options.schedule = "constant";
  options.max_new_tokens = 10;
  const DecodeStats stats = decode(oracles, options, std::vector<Ids>{{2}})[0].stats;
  EXPECT_EQ(stats.target_runs, 5);
  EXPECT_EQ(stats.drafted, 5);
  options.confidence = 0.34;
  EXPECT_EQ(decode(oracles, options, std::vector<Ids>{{2}})[0].stats.target_runs, 1);
}

TEST(DynamicWindow, CountsEndsAsTransformersDoes) {
  DynamicWindow window({.initial = 5});
  window.begin(std::vector<Row>(1));
  window.observe(0, {.drafted = 3, .accepted = 3, .cut = true});  // the accepted EOS leaves no room for another token
  EXPECT_EQ(window.length(0), 4);
  window.observe(0, {.drafted = 0, .accepted = 0, .at_limit = true});  // no room for a draft: a full acceptance
  EXPECT_EQ(window.length(0), 6);
  window.observe(0, {});  // the drafter found nothing to propose
  EXPECT_EQ(window.length(0), 6);
  window.observe(0, {.drafted = 4, .accepted = 4, .judged = false});
  EXPECT_EQ(window.length(0), 6);
}

TEST(DynamicWindow, HeuristicGoesOnWithTheMeanOfTheRowsBefore) {
  DynamicWindow window({.initial = 5});
  EXPECT_EQ(window.carried(), std::nullopt);
  window.begin(std::vector<Row>(3));
  window.observe(0, {.drafted = 5, .accepted = 5});  // 7
  window.observe(2, {.drafted = 5, .accepted = 0});  // 4
  window.select_rows(std::vector<int64_t>{2, 1});    // row 0 is finished
  window.observe(0, {.drafted = 4, .accepted = 0});  // 3
  EXPECT_EQ(window.carried(), 5);                    // (7 + 5 + 3) / 3
  window.observe(1, {.drafted = 5, .accepted = 0});
  EXPECT_EQ(window.carried(), 4);
  window.begin(std::vector<Row>(2));
  EXPECT_EQ(window.length(0), 4);
  EXPECT_EQ(window.length(1), 4);
  window.carry(9);
  window.begin(std::vector<Row>(1));
  EXPECT_EQ(window.length(0), 9);
  window.carry(std::nullopt);
  window.begin(std::vector<Row>(1));
  EXPECT_EQ(window.length(0), 5);
}

TEST(DynamicWindow, OtherSchedulesRememberNoBatch) {
  for (const WindowSchedule schedule : {kHeuristicTransient, kConstant}) {
    DynamicWindow window({.initial = 5, .schedule = schedule});
    window.begin(std::vector<Row>(1));
    window.observe(0, {.drafted = 5, .accepted = 5});
    EXPECT_EQ(window.carried(), std::nullopt);
    window.begin(std::vector<Row>(1));
    EXPECT_EQ(window.length(0), 5);
  }
}

OracleFunction small_model() {
  return mixture(random_oracle(6, 1), random_oracle(6, 2), 0.25);
}

// Target and drafter in one place, so that a generator can be used more than once.
struct DraftingPair {
  OracleModel target{oracle_info(6), random_oracle(6, 1)};
  OracleModel drafter{oracle_info(6), small_model()};

  GenerationModels models() {
    GenerationModels all;
    all.target = &target;
    all.drafter = as_drafter(drafter);
    return all;
  }
};

DecodeOptions assisted_with(const std::string& schedule) {
  DecodeOptions options;
  options.method = "assisted";
  options.schedule = schedule;
  options.max_new_tokens = 20;
  return options;
}

std::vector<Ids> some_texts() {
  std::vector<Ids> texts;
  for (int64_t i = 0; i < 12; ++i) texts.push_back({2 + i % 4, 2 + i / 4});
  return texts;
}

// Returns the tokens that greedy assisted generation drafts for one text, as Transformers counts its window. `window`
// is the number of assistant tokens before and after the text.
int64_t drafted_by_transformers(const Ids& source, const Ids& output, int64_t limit, int64_t& window) {
  const OracleFunction small = small_model();
  int64_t drafted = 0;
  Ids text;
  while (text.empty() || (text.back() != kEos && std::ssize(text) < limit)) {
    const int64_t most = std::min(window, limit - std::ssize(text) - 1);
    Ids draft = text;
    while (std::ssize(draft) - std::ssize(text) < most && (draft == text || draft.back() != kEos)) {
      const auto p = small(source, draft);
      draft.push_back(std::max_element(p.begin(), p.end()) - p.begin());
    }
    const int64_t candidates = std::ssize(draft) - std::ssize(text);
    const auto same = std::mismatch(draft.begin(), draft.end(), output.begin(), output.end());
    const int64_t kept =
        std::min<int64_t>(same.first - draft.begin() + 1, std::ssize(output));  // with the target's token
    const int64_t matches = kept - std::ssize(text) - 1;
    text.assign(output.begin(), output.begin() + kept);
    drafted += candidates;
    window = matches == candidates ? window + 2 : std::max<int64_t>(1, window - 1);
  }
  return drafted;
}

TEST(DynamicWindow, DraftsAsManyTokensAsTransformersTextByText) {
  for (const char* schedule : {"heuristic", "heuristic_transient"}) {
    DraftingPair oracles;
    Generator generator(oracles.models(), assisted_with(schedule));
    int64_t window = 5;
    bool changed = false;
    for (const Ids& text : some_texts()) {
      const auto result = generator.generate(std::vector<Ids>{text})[0];
      EXPECT_EQ(result.stats.drafted, drafted_by_transformers(text, result.ids, 20, window)) << schedule;
      changed = changed || window != 5;
      if (std::string(schedule) == "heuristic") {
        EXPECT_EQ(generator.carried_window(), window);
      } else {
        EXPECT_EQ(generator.carried_window(), std::nullopt);
        window = 5;
      }
    }
    EXPECT_TRUE(changed);
  }
}

TEST(DynamicWindow, GreedyOutputsDoNotDependOnWhatWasCarried) {
  DraftingPair oracles;
  DecodeOptions greedy;
  greedy.max_new_tokens = 20;
  const auto expected = ids_of(Generator(oracles.models(), greedy).generate(some_texts()));
  for (const int64_t batch : {1, 3, 12}) {
    DecodeOptions options = assisted_with("heuristic");
    options.batch_size = batch;
    Generator generator(oracles.models(), options);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ids_of(generator.generate(some_texts())), expected) << batch;
  }
}

// A token is drawn by another rule if it is drafted than if it follows a draft, so samples depend on windows.
TEST(DynamicWindow, SamplesOfASeedDependNeitherOnBatchesNorOnEarlierTexts) {
  for (const char* acceptance : {"rejection", "rollback"}) {
    DraftingPair oracles;
    DecodeOptions options = assisted_with("heuristic");
    options.method = "speculative";
    options.window_rule = "dynamic";
    options.acceptance = acceptance;
    options.temperature = 1;
    options.num_samples = 2;
    const auto expected = ids_of(Generator(oracles.models(), options).generate(some_texts()));
    for (const int64_t batch : {1, 3, 12}) {
      options.batch_size = batch;
      Generator generator(oracles.models(), options);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(ids_of(generator.generate(some_texts())), expected) << batch;
    }
  }
}

TEST(DynamicWindow, LossyOutputsDoNotDependOnEarlierTexts) {
  DraftingPair oracles;
  DecodeOptions options = assisted_with("heuristic");
  options.method = "bild";
  options.window_rule = "dynamic";
  Generator generator(oracles.models(), options);
  const auto first = ids_of(generator.generate(some_texts()));
  EXPECT_EQ(ids_of(generator.generate(some_texts())), first);
  options.batch_size = 5;
  EXPECT_EQ(ids_of(Generator(oracles.models(), options).generate(some_texts())), first);
}

}  // namespace
}  // namespace draftsmith::infer::testing
