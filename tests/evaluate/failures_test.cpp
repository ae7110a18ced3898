// Settings that fail: the others are measured, and all is written.
#include "evaluate/measure/failures.h"

#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "evaluate/report/report.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Two settings beside greedy decoding, of which bild dies by an exception of `Exception` where `dies` says so.
class FailingSuite : public testing::Test {
 protected:
  void SetUp() override { suite_.options.run = {FakeSuite::run("bild"), FakeSuite::run("assisted")}; }

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

  FakeSuite suite_;
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

TEST_F(FailingSuite, ASuiteWithOtherRunsKeepsWhatIsMeasured) {
  kill(engine_, "bild", true, std::runtime_error("no luck"));
  suite_.evaluate(engine_);
  suite_.options.run[0] = FakeSuite::run("early-exit");
  suite_.options.run[0].drafter.clear();
  suite_.options.run[0].lists[&DecodeOptions::exit_layer] = {1};
  FakeEngine again;
  EXPECT_TRUE(suite_.evaluate(again).failures.empty());
  EXPECT_FALSE(again.counted.contains("assisted.small"));
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
}

TEST_F(FailingSuite, DraftersThatCannotBeMeasuredKeepTheirSettings) {
  class NoPasses : public FakeEngine {
   public:
    ForcedAlphas forced_alpha(const Setting&, std::span<const Prompt>,
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

}  // namespace
}  // namespace draftsmith::evaluate
