// What changed between two evaluations, and what fails a comparison.
#include "evaluate/comparison/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/comparison/json_changes.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Two evaluations of a suite of two settings; the second one is what `change` makes of the engine and the suite.
class Comparisons : public testing::Test {
 protected:
  void SetUp() override {
    suite_.options.run = {FakeSuite::run("bild"), FakeSuite::run("assisted")};
    suite_.options.repetitions = 1;
  }
  Comparison compared(const std::function<void(FakeEngine&, FakeSuite&)>& change) {
    FakeEngine before = noisy();
    evaluate(before, "first");
    FakeEngine after = noisy();
    change(after, suite_);
    evaluate(after, "second");
    return compare(load_evaluation(file("first")), load_evaluation(file("second")), {.resamples = 200});
  }
  static const SettingChange& change_of(const Comparison& comparison, const std::string& name) {
    for (const SettingChange& setting : comparison.tasks.at(0).settings) {
      if (setting.name == name) return setting;
    }
    throw std::runtime_error("no setting " + name);
  }
  std::filesystem::path file(const std::string& name) const { return suite_.directory / (name + "/results.json"); }

  FakeSuite suite_{40};

 private:
  // Times that differ from line to line by a tenth.
  static FakeEngine noisy() {
    FakeEngine engine;
    engine.seconds = [](const Setting& run, int64_t line) {
      return (run.decode.drafts() ? 0.05 : 0.1) * (1 + 0.01 * static_cast<double>(line * 7 % 10));
    };
    return engine;
  }
  void evaluate(FakeEngine& engine, const std::string& name) const {
    run_evaluation(suite_.options, suite_.directory / name, engine, {.quiet = true});
  }
};

constexpr const char* kBild = "bild.small.FB0.5.RB5";

TEST_F(Comparisons, OfTwiceTheSameFindNothing) {
  const Comparison comparison = compared([](FakeEngine&, FakeSuite&) {});
  const SettingChange& bild = change_of(comparison, kBild);
  EXPECT_NEAR(bild.speedup->ratio, 1, 1e-3);
  EXPECT_FALSE(bild.speedup->significant());
  EXPECT_DOUBLE_EQ(bild.quality->value, 0);
  EXPECT_THAT(exceeded(comparison, {.slower = 0.01, .worse = 0.1, .by_tokens_per_second = true}), IsEmpty());
  EXPECT_THAT(comparison.environment, IsEmpty());
  EXPECT_THAT(comparison.options, IsEmpty());
}

TEST_F(Comparisons, SlowerSettingsFailByMoreThanTheLimitAlone) {
  const Comparison comparison = compared([](FakeEngine& engine, FakeSuite&) {
    engine.seconds = [before = engine.seconds](const Setting& run, int64_t line) {
      return before(run, line) * (run.method() == "bild" ? 1.1 : 1);
    };
  });
  const SettingChange& bild = change_of(comparison, kBild);
  EXPECT_NEAR(bild.speedup->ratio, 1 / 1.1, 1e-3);
  EXPECT_TRUE(bild.speedup->significant());
  EXPECT_TRUE(bild.tokens_per_second->significant());
  EXPECT_THAT(exceeded(comparison, {.slower = 0.05, .worse = {}}),
              ElementsAre(AllOf(HasSubstr(kBild), HasSubstr("slower by 9.1 %"), HasSubstr("speedup 2.00 → 1.82"))));
  EXPECT_THAT(exceeded(comparison, {.slower = 0.05, .worse = {}, .by_tokens_per_second = true}),
              ElementsAre(HasSubstr("tokens/s")));
  EXPECT_THAT(exceeded(comparison, {.slower = 0.10, .worse = {}}), IsEmpty());
  EXPECT_THAT(exceeded(comparison, {}), IsEmpty());
}

TEST_F(Comparisons, ASlowerMachineChangesTokensASecondAndNoSpeedup) {
  const Comparison comparison = compared([](FakeEngine& engine, FakeSuite&) {
    engine.seconds = [before = engine.seconds](const Setting& run, int64_t line) { return 2 * before(run, line); };
  });
  EXPECT_THAT(exceeded(comparison, {.slower = 0.05, .worse = {}}), IsEmpty());
  EXPECT_EQ(exceeded(comparison, {.slower = 0.05, .worse = {}, .by_tokens_per_second = true}).size(), 3u);
}

TEST_F(Comparisons, WorseQualityFailsIfItIsMoreThanNoise) {
  const auto worse = [](int64_t one_in) {
    return [one_in](FakeEngine& engine, FakeSuite&) {
      engine.errors = [one_in](const Setting& run, int64_t line) {
        return run.method() == "bild" && line % one_in == 0 ? 1 : 0;
      };
    };
  };
  const Comparison comparison = compared(worse(2));
  EXPECT_LT(change_of(comparison, kBild).quality->p_value, 0.05);
  EXPECT_THAT(exceeded(comparison, {.slower = {}, .worse = 0.5}),
              ElementsAre(AllOf(HasSubstr(kBild), HasSubstr("worse by"), HasSubstr("p = 0.0"))));
  EXPECT_THAT(exceeded(comparison, {.slower = {}, .worse = 90}), IsEmpty());
  const Comparison once = compared(worse(40));
  EXPECT_GT(change_of(once, kBild).quality->p_value, 0.05);
  EXPECT_THAT(exceeded(once, {.slower = {}, .worse = 0}), IsEmpty());
}

TEST_F(Comparisons, ErrorRatesFailWhenTheyRise) {
  metrics::MetricOptions& metric = suite_.options.task.front().metric;
  metric.command = "awk -F'\\t' '{print gsub(/w99/, \"\", $1)}'";  // counts the wrong words of a line
  metric.label = "wrong";
  metric.point = 0.01;
  metric.lower_is_better = true;
  const Comparison comparison = compared([](FakeEngine& engine, FakeSuite&) {
    engine.errors = [](const Setting& run, int64_t line) { return run.method() == "bild" && line % 2 == 0 ? 1 : 0; };
  });
  EXPECT_GT(change_of(comparison, kBild).quality->value, 0);
  EXPECT_THAT(comparison_text(comparison), HasSubstr("wrong: lower is better"));
  EXPECT_THAT(exceeded(comparison, {.slower = {}, .worse = 0.5}), ElementsAre(HasSubstr("worse by")));
  const Comparison back = compare(load_evaluation(file("second")), load_evaluation(file("first")), {.resamples = 200});
  EXPECT_LT(change_of(back, kBild).quality->value, 0);
  EXPECT_THAT(exceeded(back, {.slower = {}, .worse = 0}), IsEmpty());
}

TEST_F(Comparisons, NewAndMissingSettingsAreNamed) {
  const Comparison comparison = compared([](FakeEngine&, FakeSuite& suite) {
    suite.options.run[0].lists[&DecodeOptions::fallback] = {0.7};
    suite.options.repetitions = 2;
  });
  EXPECT_THAT(comparison.tasks[0].missing, ElementsAre(kBild));
  EXPECT_THAT(comparison.tasks[0].added, ElementsAre("bild.small.FB0.7.RB5"));
  EXPECT_THAT(comparison.options, Contains("repetitions: 1 → 2"));
  EXPECT_THAT(exceeded(comparison, {.slower = 0.5, .worse = {}}), ElementsAre(HasSubstr("missing")));
  EXPECT_THAT(comparison_text(comparison), AllOf(HasSubstr(std::string("! missing settings: ") + kBild),
                                                 HasSubstr("new settings: bild.small.FB0.7")));
}

TEST_F(Comparisons, WithoutLinesOnlyTheTestsAreMissing) {
  compared([](FakeEngine&, FakeSuite&) {});
  std::filesystem::remove(suite_.directory / "first/lines.jsonl");
  const Comparison comparison = compare(load_evaluation(file("first")), load_evaluation(file("second")), {});
  const SettingChange& bild = change_of(comparison, kBild);
  EXPECT_FALSE(bild.quality.has_value());
  EXPECT_FALSE(bild.tokens_per_second->interval.has_value());
  EXPECT_TRUE(bild.speedup->interval.has_value());  // of both evaluations' own intervals
  EXPECT_THAT(comparison_text(comparison), HasSubstr("without p-values"));
}

TEST_F(Comparisons, TablesFitAndMarkWhatIsMoreThanNoise) {
  const Comparison comparison = compared([](FakeEngine& engine, FakeSuite&) {
    engine.errors = [](const Setting& run, int64_t) { return run.method() == "bild" ? 1 : 0; };
    engine.seconds = [](const Setting&, int64_t) { return 0.1; };
  });
  const std::string text = comparison_text(comparison);
  EXPECT_LE(widest_line(text), 100u) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("2.00 → 1.00"), HasSubstr("-50.0 %*"), HasSubstr("* more than noise")));
  EXPECT_THAT(comparison_markdown(comparison), AllOf(HasSubstr("## test"), HasSubstr("| run |")));
}

TEST_F(Comparisons, ADamagedFileOfLinesIsNamed) {
  compared([](FakeEngine&, FakeSuite&) {});
  write_file_atomic(suite_.directory / "first/lines.jsonl", "{\"task\":\"test\"}\n");
  EXPECT_THAT(error_of([&] { load_evaluation(file("first")); }),
              AllOf(HasSubstr("lines.jsonl:1"), HasSubstr("no line of an evaluation")));
}

TEST(JsonChanges, NameNestedValuesByTheirPaths) {
  const nlohmann::ordered_json first{
      {"a", 1}, {"date", "x"}, {"list", {{{"name", "val"}, {"limit", 3}}}}, {"b", {1, 2}}};
  const nlohmann::ordered_json second{
      {"a", 1}, {"date", "y"}, {"list", {{{"name", "val"}, {"limit", 4}}}}, {"c", true}};
  EXPECT_THAT(json_changes(first, second, {"date"}),
              ElementsAre("list.val.limit: 3 → 4", "b.0: 1 → nothing", "b.1: 2 → nothing", "c: nothing → true"));
}

}  // namespace
}  // namespace draftsmith::evaluate
