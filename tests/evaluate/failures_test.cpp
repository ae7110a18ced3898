// Settings that fail and tasks that a command scores: the others are measured, nothing is measured twice, all is
// written.

#include <new>
#include <stdexcept>

#include <gmock/gmock.h>

#include "base/json.h"
#include "evaluate/comparison/comparison.h"
#include "evaluate/report/report.h"
#include "evaluate/results/summary.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

// Two settings beside greedy decoding, of which bild dies by an exception of `Exception` where `dies` says so.
class FailingSuite : public testing::Test {
 protected:
  template <class Exception>
  static void kill(FakeEngine& engine, const std::string& label, bool in_counting, const Exception& exception) {
    engine.death = [=](const Setting& setting, const DecodeBatch& batch) {
      if (setting.label.starts_with(label) && batch.count == in_counting && batch.first_line >= 2) throw exception;
    };
  }
  static std::vector<std::string> names(const TaskResult& task) {
    std::vector<std::string> names;
    for (const SettingResult* row : task.rows()) names.push_back(row->name);
    return names;
  }
  static std::string failure(const TaskResult& task) {
    std::string text;
    for (const SettingFailure& one : task.failures)
      text += one.setting + " | " + one.during + " | " + one.message + "\n";
    return text;
  }

  FakeSuite suite_ = FakeSuite({"bild", "assisted"});
  FakeEngine engine_;
};

TEST_F(FailingSuite, ASettingThatFailsIsNamedAndTheOthersAreMeasured) {
  kill(engine_, "bild", true, std::bad_alloc());
  const SuiteResult result = suite_.evaluate(engine_);
  const TaskResult& task = result.results.tasks.front();
  EXPECT_THAT(names(task), ElementsAre("greedy", "A/A greedy", "assisted.small"));
  EXPECT_EQ(failure(task), "bild.small.FB0.5.RB5 | decoding | out of memory\n");
  const std::string note = "! bild.small.FB0.5.RB5 failed during decoding: out of memory";
  EXPECT_THAT(result.table, HasSubstr(note));
  EXPECT_THAT(report_markdown(result.results), HasSubstr(note.substr(2)));
  EXPECT_THAT(read_file(suite_.directory / "out/report.html"), HasSubstr(note));
  const auto written = load_json(suite_.directory / "out/results.json");
  EXPECT_EQ(written.at("tasks").at(0).at("failures").at(0).at("message"), "out of memory");
  EXPECT_EQ(to_json(load_results(suite_.directory / "out/results.json")), to_json(result.results));
  EXPECT_THROW(throw_if_failed(result), RunError);  // exit code 1
}

TEST_F(FailingSuite, AFailureInTimingIsOneToo) {
  kill(engine_, "bild", false, std::runtime_error("a kernel\nfailed"));
  const SuiteResult result = suite_.evaluate(engine_);
  const TaskResult& task = result.results.tasks.front();
  EXPECT_THAT(names(task), ElementsAre("greedy", "A/A greedy", "assisted.small"));
  EXPECT_EQ(failure(task), "bild.small.FB0.5.RB5 | timing | a kernel failed\n");
  EXPECT_NEAR(task.settings.back().speed.speedup.value, 2, 1e-3);
}

TEST_F(FailingSuite, ATableBesideTheSettingsMayFail) {
  struct : FakeEngine {
    std::vector<infer::MatchRate> match_rates(const MatchRateTable&, std::span<const Prompt>, int64_t) override {
      throw std::runtime_error("too large");
    }
  } engine;
  suite_.options.match_rates.emplace_back().name = "exits";
  EXPECT_EQ(failure(suite_.evaluate(engine).results.tasks.front()), "match rates exits | scoring | too large\n");
}

TEST_F(FailingSuite, SettingsThatAreComparedWithAFailedOneFailToo) {
  suite_.options.run.push_back(FakeSuite::run("speculative"));
  kill(engine_, "sample", true, std::runtime_error("no luck"));
  const TaskResult task = suite_.evaluate(engine_).results.tasks.front();
  EXPECT_THAT(names(task), ElementsAre("greedy", "A/A greedy", "bild.small.FB0.5.RB5", "assisted.small"));
  EXPECT_THAT(failure(task), AllOf(HasSubstr("sample.T1 | decoding | no luck\n"),
                                   HasSubstr("speculative.small.T1 | decoding | sample.T1, which it is compared with, "
                                             "failed: no luck\n")));
}

TEST_F(FailingSuite, TheNextRunMeasuresWhatFailedAndNothingElse) {
  kill(engine_, "bild", true, std::runtime_error("no luck"));
  suite_.evaluate(engine_);
  FakeEngine again;
  const SuiteResult whole = suite_.evaluate(again);
  EXPECT_TRUE(whole.failures.empty());
  EXPECT_THAT(names(whole.results.tasks.front()),
              ElementsAre("greedy", "A/A greedy", "bild.small.FB0.5.RB5", "assisted.small"));
  EXPECT_FALSE(again.counted.contains("greedy"));
  EXPECT_EQ(again.counted.at("bild.small.FB0.5.RB5"), 24 - 2);
}

TEST_F(FailingSuite, WhereAllSettingsOfAChoiceFailTheChosenRowIsMissing) {
  suite_.options.task.push_back(suite_.task("val"));
  suite_.options.run[0].choose_on = "val";
  suite_.options.run[0].max_drop = {0};
  kill(engine_, "bild", true, std::runtime_error("no luck"));
  const Results results = suite_.evaluate(engine_).results;
  EXPECT_THAT(failure(results.tasks[0]), HasSubstr("bild.small.FB0.5.RB5 | decoding"));
  EXPECT_EQ(failure(results.tasks[1]), "bild.small.drop0 | choosing | no setting of bild.small was measured on val\n");
  EXPECT_THAT(names(results.tasks[1]), ElementsAre("greedy", "A/A greedy", "assisted.small"));
  suite_.options.run[0].lists[&DecodeOptions::batch_size] = {4};
  FakeEngine other;
  kill(other, "greedy.batch4", true, std::runtime_error("no luck"));
  EXPECT_THAT(failure(suite_.evaluate(other).results.tasks[1]), HasSubstr("no setting of bild.small"));
}

TEST_F(FailingSuite, DraftersThatCannotBeMeasuredKeepTheirSettings) {
  class NoPasses : public FakeEngine {
   public:
    infer::ForcedAlpha forced_alpha(const Setting&, std::span<const Prompt>,
                                    const std::vector<std::vector<int64_t>>&) override {
      throw std::runtime_error("no passes");
    }
    infer::StepCosts step_costs(const Setting&, const Prompt&, const std::vector<int64_t>&, int64_t) override {
      throw std::logic_error("no steps");
    }
  } engine;
  const TaskResult task = suite_.evaluate(engine).results.tasks.front();
  EXPECT_THAT(names(task), ElementsAre("greedy", "A/A greedy", "bild.small.FB0.5.RB5", "assisted.small"));
  EXPECT_THAT(failure(task), AllOf(HasSubstr("drafter small | teacher-forced passes | no passes\n"),
                                   HasSubstr("bild.small.FB0.5.RB5 | step times | internal error: no steps\n")));
}

TEST_F(FailingSuite, WithoutGreedyDecodingThereIsNothingToCompareWith) {
  kill(engine_, "greedy", true, std::runtime_error("no luck"));
  EXPECT_THAT(error_of<std::runtime_error>([&] { suite_.evaluate(engine_); }), HasSubstr("no luck"));
}

// Prints the share of a hypothesis' words that are the reference's.
constexpr const char* kWords =
    "awk -F'\\t' '{n = split($1, h, \" \"); split($2, r, \" \"); s = 0;"
    " for (i = 1; i <= n; i++) if (h[i] == r[i]) s++; print (n ? s / n : 0)}'";

class CommandSuite : public testing::Test {
 protected:
  void SetUp() override {
    script(kWords);
    engine_.errors = [](const Setting& run, int64_t) { return run.method() == "bild" ? 3 : 0; };
    score_by("sh " + (suite_.directory / "score.sh").string());
  }
  void score_by(const std::string& command) {
    for (TaskOptions& task : suite_.options.task) {
      task.metric.command = command;
      task.metric.label = "words";
      task.metric.point = 0.01;
    }
  }
  void script(const std::string& text) const { write_text(suite_.directory / "score.sh", text + "\n"); }
  FakeSuite suite_ = FakeSuite({"bild", "assisted"});
  FakeEngine engine_;
};

TEST_F(CommandSuite, ScoresWithIntervalsAndTests) {
  const Results results = suite_.evaluate(engine_).results;
  const TaskResult& task = results.tasks.front();
  EXPECT_EQ(task.metric, "command");
  EXPECT_EQ(task.command->label, "words");
  const auto* greedy = task.baseline.quality.find("words");
  ASSERT_NE(greedy, nullptr);
  EXPECT_DOUBLE_EQ(greedy->value, 1);
  const Quality& bild = task.find("bild.small.FB0.5.RB5")->quality;
  double expected = 0;
  for (int64_t line = 0; line < 24; ++line) expected += 1 - 3.0 / static_cast<double>(6 + line % 8);
  EXPECT_NEAR(bild.find("words")->value, expected / 24, 1e-5);  // awk prints six digits
  EXPECT_LT(bild.find("words")->interval.low, bild.find("words")->value);
  EXPECT_LT(bild.difference->p_value, 0.01);
}

TEST_F(CommandSuite, IsReadAgainWithoutTheCommand) {
  const Results results = suite_.evaluate(engine_).results;
  std::filesystem::remove(suite_.directory / "score.sh");
  const Evaluation back = load_evaluation(suite_.directory / "out/results.json");
  EXPECT_EQ(to_json(back.results), to_json(results));
  EXPECT_THAT(results_table(back.results), HasSubstr("words"));
  const Comparison comparison = compare(back, back, {.slower = {}, .worse = 0}, {.resamples = 20});
  EXPECT_THAT(comparison.text, AllOf(HasSubstr("words"), testing::Not(HasSubstr("without p-values"))));
  EXPECT_THAT(comparison.failures, testing::IsEmpty());
}

TEST_F(CommandSuite, ABrokenCommandIsFoundBeforeAnythingRuns) {
  score_by("echo no model >&2; exit 3");
  const std::string message = error_of([&] { suite_.evaluate(engine_); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("task test, tried on 2 lines"), HasSubstr("exit code 3"), HasSubstr("no model")));
  score_by("echo 1");
  EXPECT_THAT(error_of([&] { suite_.evaluate(engine_); }), HasSubstr("too few lines"));
  EXPECT_EQ(engine_.decodes, 0);
  EXPECT_FALSE(std::filesystem::exists(suite_.directory / "out"));
}

TEST_F(CommandSuite, AFailureOnOneSettingCostsNoOtherAndNoMeasurement) {
  score_by("while read -r line; do case $line in *w99*) exit 4;; esac; echo 1; done");
  const SuiteResult result = suite_.evaluate(engine_);
  const TaskResult& task = result.results.tasks.front();
  EXPECT_EQ(task.find("bild.small.FB0.5.RB5"), nullptr);
  EXPECT_NE(task.find("assisted.small"), nullptr);
  ASSERT_EQ(task.failures.size(), 1u);
  EXPECT_EQ(task.failures.front().during, "scoring");
  EXPECT_THAT(task.failures.front().message, HasSubstr("exit code 4"));
  EXPECT_THROW(throw_if_failed(result), RunError);
  score_by(kWords);
  FakeEngine again;
  again.errors = engine_.errors;
  const SuiteResult whole = suite_.evaluate(again);
  EXPECT_TRUE(whole.failures.empty());
  EXPECT_NE(whole.results.tasks.front().find("bild.small.FB0.5.RB5"), nullptr);
  EXPECT_TRUE(again.counted.empty()) << "another command measures nothing again";
}

// The lower the threshold, the faster and the worse.
TEST_F(CommandSuite, ErrorsAreLostUpwards) {
  suite_.options.task = {suite_.task("test"), suite_.task("val")};
  score_by("awk -F'\\t' '{print gsub(/w99/, \"\", $1)}'");
  for (TaskOptions& task : suite_.options.task) task.metric.lower_is_better = true;
  suite_.options.run.resize(1);
  suite_.options.run[0].lists[&DecodeOptions::fallback] = {0.1, 0.9};
  suite_.options.run[0].choose_on = "val";
  suite_.options.run[0].max_drop = {0};
  engine_.errors = [](const Setting& run, int64_t) {
    return run.method() == "bild" && run.decode.fallback < 0.5 ? 2 : 0;
  };
  engine_.seconds = [](const Setting& run, int64_t) {
    return run.decode.drafts() ? 0.04 + 0.05 * run.decode.fallback : 0.1;
  };
  const Results results = suite_.evaluate(engine_).results;
  EXPECT_EQ(setting_of(results, "bild.small.FB0.1.RB5").quality.difference->value, 2);
  const ChosenSetting chosen = setting_of(results, "bild.small.drop0", 1).chosen.value();
  EXPECT_EQ(chosen.setting, "bild.small.FB0.9.RB5") << "the other one adds two errors a line";
  EXPECT_EQ(chosen.drop_there, 0);
  EXPECT_TRUE(chosen.allowed);
}

}  // namespace
}  // namespace draftsmith::evaluate
