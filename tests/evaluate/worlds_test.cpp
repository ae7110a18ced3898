// Suites that several processes evaluate together: all that is not timed equals one process's to the byte.
#include "tests/support/worlds.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/signals.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/evaluate/model_suite.h"
#include "tests/support/untimed_results.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::run_in_world;

// Returns the content of all files in a directory of results, but for those that times are in.
std::map<std::string, std::string> untimed_files(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().lexically_relative(directory).string();
    if (name.starts_with("hyp/") || name.starts_with("match_rates") || name.starts_with("engagement")) {
      if (entry.is_regular_file()) files[name] = read_file(entry.path());
    }
    EXPECT_FALSE(name.starts_with("measurements.")) << name;
  }
  return files;
}

SettingGrid run_of(const std::string& method, const std::optional<double>& temperature = {}) {
  SettingGrid run = FakeSuite::run(method);
  if (temperature) run.lists[&DecodeOptions::temperature] = {*temperature};
  return run;
}

// Evaluates a suite in worlds of several processes, each with an engine of its own whose times are known.
class FakeSuiteInWorlds : public testing::Test {
 protected:
  void SetUp() override {
    suite_.options.task = {suite_.task("test"), suite_.task("val")};
    suite_.options.task[0].timed = 10;
    SettingGrid chosen = run_of("bild");
    chosen.lists[&DecodeOptions::fallback] = {0.3, 0.5, 0.7};
    chosen.lists[&DecodeOptions::rollback] = {5};
    chosen.choose_on = "val";
    chosen.max_drop = {0, 30};
    suite_.options.run = {chosen, run_of("assisted"), run_of("speculative", 0.8)};
    suite_.options.forced_lines = 7;
  }

  static FakeEngine engine() {
    FakeEngine engine;
    engine.errors = [](const Setting& run, int64_t line) {
      if (run.method() != "bild") return line % 5 == 0 ? 1 : 0;
      if (run.decode.fallback < 0.4) return 5;
      return run.decode.fallback < 0.6 && line % 3 == 0 ? 1 : 0;
    };
    engine.seconds = [](const Setting& run, int64_t) {
      return run.method() == "bild" ? 0.04 + 0.05 * run.decode.fallback : 0.1;
    };
    engine.first_token = [](const Setting&, int64_t line, int64_t) { return line % 4; };
    return engine;
  }

  // Evaluates in a world of such a size. Returns the engines by rank, and the leader's results.
  struct Evaluated {
    std::vector<FakeEngine> engines;
    std::string results;  // JSON
    std::string error;
  };
  Evaluated evaluate(int64_t size, const std::function<void(std::vector<FakeEngine>&)>& prepare = {}) const {
    Evaluated all{.engines = std::vector<FakeEngine>(static_cast<size_t>(size), engine()), .results = {}, .error = {}};
    if (prepare) prepare(all.engines);
    try {
      run_in_world(size, [&](World& world) {
        try {
          const SuiteResult result =
              run_evaluation(suite_.options, suite_.directory / "out", all.engines[static_cast<size_t>(world.rank())],
                             {.quiet = true, .world = &world});
          EXPECT_EQ(result.results.tasks.empty(), !world.leads());
          if (world.leads()) all.results = to_json(result.results).at("tasks").dump(1);
          world.wait_for_all("the end");
        } catch (const std::exception& error) {
          world.fail(error.what());
          throw;
        }
      });
    } catch (const std::exception& error) {
      all.error = error.what();
    }
    return all;
  }

  static int64_t decodes(const Evaluated& all) {
    int64_t sum = 0;
    for (const FakeEngine& engine : all.engines) sum += engine.decodes;
    return sum;
  }

  FakeSuite suite_;
  std::optional<SignalWatch> watch_{std::in_place};
};

TEST_F(FakeSuiteInWorlds, GiveTheResultsAndFilesOfOneProcess) {
  const std::map<int64_t, std::vector<int64_t>> sizes{{1, {2, 4}}, {5, {3}}};  // of worlds by batch size
  for (const auto& [batch_size, worlds] : sizes) {
    suite_.options.batch_size = batch_size;
    const Evaluated alone = evaluate(1);
    ASSERT_EQ(alone.error, "");
    const auto files = untimed_files(suite_.directory / "out");
    EXPECT_GT(files.size(), 10U);
    const std::string lines = read_file(suite_.directory / "out/lines.jsonl");
    for (const int64_t size : worlds) {
      SCOPED_TRACE("a world of " + std::to_string(size));
      fs::remove_all(suite_.directory / "out");
      const Evaluated several = evaluate(size);
      ASSERT_EQ(several.error, "");
      EXPECT_EQ(several.results, alone.results);
      EXPECT_EQ(untimed_files(suite_.directory / "out"), files);
      EXPECT_EQ(read_file(suite_.directory / "out/lines.jsonl"), lines);
    }
  }
}

TEST_F(FakeSuiteInWorlds, CountEachBatchOnceAndTimeOnTheLeaderAlone) {
  const Evaluated alone = evaluate(1);
  fs::remove_all(suite_.directory / "out");
  const Evaluated three = evaluate(3);
  std::map<std::string, int64_t> counted;
  for (const FakeEngine& engine : three.engines) {
    for (const auto& [label, count] : engine.counted) counted[label] += count;
  }
  EXPECT_EQ(counted, alone.engines.front().counted);
  EXPECT_EQ(decodes(three), decodes(alone));
  for (size_t rank : {1, 2}) {
    for (const FakeEngine::Call& call : three.engines[rank].calls) {
      EXPECT_TRUE(call.count || call.label.starts_with("alpha_forced")) << call.label;
    }
  }
}

TEST_F(FakeSuiteInWorlds, AFailureOfOneEndsAllWithItsMessage) {
  const Evaluated failed = evaluate(3, [](auto& engines) {
    // The others are not done before it begins.
    for (FakeEngine& engine : engines) {
      engine.length = [](const Setting&, int64_t, size_t words) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return words;
      };
    }
    engines[1].death = [](const Setting& setting, const DecodeBatch&) {
      if (setting.is_greedy_baseline()) throw std::runtime_error("killed");
    };
  });
  EXPECT_THAT(failed.error, HasSubstr("process 1 of 3 failed: killed"));
}

TEST_F(FakeSuiteInWorlds, AStoppedJobOfThreeGoesOnWithOneOrTwo) {
  const Evaluated whole = evaluate(1);
  for (const int64_t size : {1, 2}) {
    SCOPED_TRACE("going on with " + std::to_string(size));
    fs::remove_all(suite_.directory / "out");
    std::atomic<int64_t> calls = 0;
    const Evaluated stopped = evaluate(3, [&](auto& engines) {
      for (FakeEngine& engine : engines) {
        engine.length = [&](const Setting&, int64_t, size_t words) {
          if (++calls == 60) request_stop(SIGTERM);
          return words;
        };
      }
    });
    EXPECT_THAT(stopped.error, HasSubstr("run the evaluation again to go on"));
    watch_.reset();
    watch_.emplace();  // which takes the request back
    const Evaluated resumed = evaluate(size);
    EXPECT_EQ(resumed.error, "");
    EXPECT_EQ(resumed.results, whole.results);
    EXPECT_LT(decodes(resumed), decodes(whole) - 50);
  }
}

// Times of one task need the counts of all processes, whose files are kept until the end.
TEST_F(FakeSuiteInWorlds, AStopOfTheLeaderWhileItTimesStopsAll) {
  const Evaluated stopped = evaluate(2, [](auto& engines) {
    engines[0].seconds = [&engine = engines[0]](const Setting&, int64_t) {
      if (!engine.calls.back().count && engine.calls.back().max_new_tokens < 10) request_stop(SIGTERM);
      return 0.1;
    };
  });
  EXPECT_THAT(stopped.error, HasSubstr("asked to terminate"));
  EXPECT_TRUE(fs::exists(suite_.directory / "out/measurements.jsonl"));
  EXPECT_TRUE(fs::exists(suite_.directory / "out/measurements.1.jsonl"));
}

class ModelSuiteInWorlds : public ModelSuite {};

TEST_F(ModelSuiteInWorlds, GivesTheCountsTextsAndSummaryOfOneProcess) {
  options_.batch_size = 2;
  options_.forced_lines = 7;
  options_.repetitions = 1;
  add_run("assisted", "small");
  SettingGrid& sampled = add_run("speculative", "small");
  sampled.lists[&DecodeOptions::temperature] = {0, 0.7};
  sampled.lists[&DecodeOptions::window] = {3};
  SettingGrid& oracle = add_run("assisted", "small");
  oracle.name = "oracle";
  oracle.decode.window_rule = "oracle";
  oracle.lists[&DecodeOptions::max_draft] = {6};
  SettingGrid& bild = add_run("bild", "small");
  bild.choose_on = "val";
  options_.task.push_back(options_.task.front());
  options_.task.back().name = "val";
  options_.task.back().limit = 5;
  options_.task.front().skip = 5;
  add_run("early-exit", "").lists[&DecodeOptions::exit_layer] = {1};
  MatchRateTable& rates = options_.match_rates.emplace_back();
  rates.name = "early";
  rates.prompts = 6;
  EngagementTable& curve = options_.engagement.emplace_back();
  curve.drafter = "small";
  curve.oracle = {0.1};
  curve.fallback = {0.5};
  std::string expected;
  std::map<std::string, std::string> files;
  for (const int64_t size : {1, 2, 3}) {
    SCOPED_TRACE("a world of " + std::to_string(size));
    fs::remove_all(root_ / "out");
    std::string results;
    run_in_world(size, [&](World& world) {
      const SuiteResult result = run_evaluation(options_, root_ / "out", {.quiet = true, .world = &world});
      if (world.leads()) results = untimed_results(to_json(result.results)).dump(1);
    });
    if (size == 1) {
      expected = results;
      files = untimed_files(root_ / "out");
      EXPECT_GT(files.size(), 10U);
      for (const char* part : {"alpha_forced", "cross_entropy", "exactness", "p_value", "\"decoding\": \"top-p\""}) {
        EXPECT_THAT(expected, HasSubstr(part));
      }
    } else {
      EXPECT_EQ(results, expected);
      EXPECT_EQ(untimed_files(root_ / "out"), files);
    }
  }
}

}  // namespace
}  // namespace draftsmith::evaluate
