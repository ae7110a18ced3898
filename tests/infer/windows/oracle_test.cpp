// The oracle that replays accepted lengths: nothing it drafts is rejected, and no rule runs the target less often.
#include "infer/windows/oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "infer/acceptance/exact.h"
#include "infer/drafters/model_drafter.h"
#include "tests/infer/windows/window_fixtures.h"
#include "tests/support/errors.h"

namespace draftsmith::infer::testing {
namespace {

struct OracleRun {
  std::vector<GenerationResult> recorded;
  std::vector<GenerationResult> replayed;
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

TEST(OracleWindow, DraftsNothingThatIsRejectedAndEqualsGreedyDecoding) {
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
  const DecodeStats recorded = total(run_oracle(pair, 8, 1).recorded);
  EXPECT_LT(recorded.accepted, recorded.drafted);  // there was something to leave out
  EXPECT_GT(recorded.accepted, 0);
}

TEST(OracleWindow, MakesNoMoreTargetRunsThanAnyOtherRule) {
  const Pair pair;
  const DecodeStats oracle = total(run_oracle(pair, 8, 1).replayed);
  for (int64_t window = 1; window <= 8; ++window) {
    DecodeOptions options = assisted("fixed", 1);
    options.window = window;
    EXPECT_LE(oracle.target_runs, total(Generator(pair.models(), options).generate(sources())).target_runs);
  }
  DecodeOptions options = assisted("router", 1);
  options.max_draft = 8;
  options.threshold = 0.5;
  EXPECT_LE(oracle.target_runs, total(Generator(pair.models(), options).generate(sources())).target_runs);
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
