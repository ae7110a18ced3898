// Window rules: when they are asked, that they answer on the CPU as LibTorch's operators would, the dynamic window of
// assisted generation within a text and across texts, and the oracle that replays accepted lengths.
#include "infer/windows/window_rules.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>

#include "infer/acceptance/acceptance_rules.h"
#include "infer/drafters/model_drafter.h"
#include "infer/loop/decode_loop.h"
#include "tests/infer/windows/window_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {
namespace {

using enum WindowSchedule;

TEST(DynamicWindow, ConfidenceStopKeepsTheTokenItStopsAt) {
  // The drafter gives its tokens .35 < .4: each window holds exactly that one token.
  const Case oracles{constant_oracle({0.35, 0, 0.33, 0.32}), constant_oracle({0.35, 0, 0.33, 0.32})};
  DecodeOptions options{.method = "assisted", .schedule = "constant", .max_new_tokens = 10};
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

OracleFunction small_model() {
  return mixture(random_oracle(6, 1), random_oracle(6, 2), 0.25);
}

DecodeOptions assisted_with(const std::string& schedule) {
  return {.method = "assisted", .schedule = schedule, .max_new_tokens = 20};
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
    OraclePair oracles({random_oracle(6, 1), small_model(), 6});
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

// A token is drawn by another rule if it is drafted than if it follows a draft, so samples depend on windows.
TEST(DynamicWindow, SamplesOfASeedDependNeitherOnBatchesNorOnEarlierTexts) {
  for (const char* acceptance : {"rejection", "rollback"}) {
    OraclePair oracles({random_oracle(6, 1), small_model(), 6});
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

// Lets every row go on, or none, and notes whom it was asked about.
class NotingWindow : public FixedWindow {
 public:
  NotingWindow(int64_t window, Decides decides, std::vector<Ids>& asked, bool answer = true)
      : FixedWindow(window), decides_(decides), asked_(asked), answer_(answer) {}
  WindowTraits traits() const override { return {.name = "noting", .decides = decides_}; }
  at::Tensor go_on(const DraftStep& step) override {
    asked_.emplace_back(step.active.begin(), step.active.end());
    return at::full({step.logits.size(0)}, answer_, at::kBool);
  }

 private:
  Decides decides_;
  std::vector<Ids>& asked_;
  bool answer_;
};

// Token 2 twice, then EOS, after source {2}; token 3 forever after any other.
std::vector<double> next_token(std::span<const int64_t> source, std::span<const int64_t> prefix) {
  if (source.front() != 2) return one_hot(4, 3);
  return one_hot(4, prefix.size() < 2 ? 2 : kEos);
}

std::vector<GenerationResult> decode_with(std::unique_ptr<WindowRule> window, std::span<const Ids> sources) {
  OraclePair oracles({next_token, next_token});
  DecodeOptions options{.method = "assisted", .max_new_tokens = 8, .batch_size = 2};
  DraftParts parts{std::make_unique<ModelDrafter>(oracles.drafter, 4), std::move(window),
                   std::make_unique<ExactAcceptance>()};
  return Generator(oracles.models(), options, std::move(parts)).generate(sources);
}

TEST(WindowRules, AreNotAskedAboutTheLastTokenAllowedNorAfterAnEos) {
  const std::vector<Ids> sources = {{2}, {3}};
  std::vector<Ids> asked;
  const auto results = decode_with(std::make_unique<NotingWindow>(3, Decides::kAfterToken, asked), sources);
  EXPECT_EQ(results[0].ids, (Ids{2, 2, kEos}));
  EXPECT_EQ(results[1].ids, Ids(8, 3));
  // Both rows after tokens 1 and 2, none after the third; then the second row alone, which wrote 4 tokens: again 3.
  ASSERT_EQ(asked.size(), 4U);
  EXPECT_EQ(asked[0], (Ids{1, 1}));
  EXPECT_EQ(asked[1], (Ids{1, 1}));
  for (size_t i = 2; i < asked.size(); ++i) EXPECT_EQ(std::count(asked[i].begin(), asked[i].end(), 1), 1);
}

TEST(WindowRules, ThatDecideBeforeATokenLeaveItOut) {
  std::vector<Ids> asked;
  const std::vector<Ids> source = {{3}};
  const auto results = decode_with(std::make_unique<NotingWindow>(1, Decides::kBeforeToken, asked, false), source);
  EXPECT_EQ(results[0].ids, Ids(8, 3));
  EXPECT_EQ(results[0].stats.drafted, 0);
  EXPECT_EQ(results[0].stats.target_runs, 8);
  EXPECT_EQ(asked.size(), 7U);  // nothing is drafted for the last token, which is the target's own
}

class RowAnswers : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  // [40,30] the last row without numbers
  static at::Tensor some_rows() {
    at::manual_seed(3);
    at::Tensor values = at::randn({40, 30}, at::kDouble) * 3;
    values[39].fill_(std::numeric_limits<double>::quiet_NaN());
    return values.to(GetParam());
  }
};

// A row exactly at the edge goes on.
TEST_P(RowAnswers, AreThoseOfTheOperators) {
  const at::Tensor logits = some_rows(), sure = confidence(logits);
  const double least = sure[7].item<double>();
  EXPECT_TRUE(at::equal(FallbackWindow(least, 5).go_on({logits, {}}), sure.lt(least).logical_not()));
  const at::Tensor tokens = at::arange(40, at::kLong).remainder(30), chances = token_log_probability(logits, tokens);
  const double chance = std::exp(chances[7].item<double>());
  const at::Tensor answers = DynamicWindow({.confidence = chance}).go_on({logits, tokens});
  EXPECT_TRUE(at::equal(answers, chances.ge(std::log(chance))));
  EXPECT_TRUE(answers.any().item<bool>());
  const at::Tensor nats = entropy(logits);
  const double most = nats[7].item<double>();
  EXPECT_TRUE(at::equal(EntropyWindow(most, 5).go_on({logits, {}}), nats.le(most)));
}

INSTANTIATE_TEST_SUITE_P(Types, RowAnswers, ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

struct OracleRun {
  std::vector<GenerationResult> recorded, replayed;
};

OracleRun run_oracle(const Pair& pair, int64_t max_draft, int64_t batch) {
  AcceptedLengths lengths;
  const DecodeOptions options = assisted("fixed", batch);
  DraftParts parts{std::make_unique<ModelDrafter>(*pair.drafter, 24),
                   std::make_unique<RecordingWindow>(max_draft, lengths), std::make_unique<ExactAcceptance>()};
  OracleRun run;
  run.recorded = Generator(pair.models(), options, std::move(parts)).generate(sources());
  GenerationModels models = pair.models();
  models.accepted_lengths = &lengths;
  DecodeOptions replay = assisted("oracle", batch);
  replay.max_draft = max_draft;
  run.replayed = Generator(models, replay).generate(sources());
  return run;
}

TEST(OracleWindow, DraftsNothingThatIsRejectedAndMakesNoMoreTargetRunsThanOtherRules) {
  const Pair pair;
  const auto expected = greedy(pair);
  for (const int64_t batch : {1, 4}) {
    for (const int64_t max_draft : {1, 3, 8}) {
      const OracleRun run = run_oracle(pair, max_draft, batch);
      EXPECT_EQ(ids_of(run.replayed), expected);
      for (size_t i = 0; i < run.replayed.size(); ++i) {
        const DecodeStats& replayed = run.replayed[i].stats;
        EXPECT_EQ(replayed.accepted, replayed.drafted);
        EXPECT_EQ(replayed.draft_runs, replayed.drafted);
        EXPECT_EQ(replayed.target_runs, run.recorded[i].stats.target_runs);
        EXPECT_EQ(replayed.accepted, run.recorded[i].stats.accepted);
      }
    }
  }
  const OracleRun whole = run_oracle(pair, 8, 1);
  EXPECT_LT(total(whole.recorded).accepted, total(whole.recorded).drafted);  // there was something to leave out
  for (const int64_t window : {1, 3, 8}) {
    DecodeOptions options = assisted("fixed", 1);
    options.window = window;
    const auto results = Generator(pair.models(), options).generate(sources());
    EXPECT_LE(total(whole.replayed).target_runs, total(results).target_runs);
  }
}

TEST(OracleWindow, RefusesToSample) {
  const Pair pair;
  const AcceptedLengths lengths;
  GenerationModels models = pair.models();
  models.accepted_lengths = &lengths;
  DecodeOptions options = assisted("oracle", 1);
  options.method = "speculative";
  options.temperature = 0.7;
  EXPECT_THAT(error_of([&] { Generator(models, options); }), ::testing::HasSubstr("temperature 0"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
