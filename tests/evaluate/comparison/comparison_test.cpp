// What changed between two evaluations, and what fails a comparison.
#include "evaluate/comparison/comparison.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

// Two evaluations of a suite of two settings; the second one is what `change` makes of the engine and the suite.
class Comparisons : public testing::Test {
 protected:
  Comparisons() { suite_.options.repetitions = 1; }
  void evaluate_both(const std::function<void(FakeEngine&, FakeSuite&)>& change) {
    FakeEngine before = noisy();
    evaluate(before, "first");
    FakeEngine after = noisy();
    change(after, suite_);
    evaluate(after, "second");
  }
  Comparison compared(const Limits& limits = {}) const {
    return compare(load_evaluation(file("first")), load_evaluation(file("second")), limits, {.resamples = 200});
  }
  std::filesystem::path file(const std::string& name) const { return suite_.directory / (name + "/results.json"); }

  FakeSuite suite_ = FakeSuite({"bild", "assisted"}, 40);

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
    run_evaluation(suite_.options, suite_.directory / name, engine);
  }
};

constexpr const char* kBild = "bild.small.FB0.5.RB5";

TEST_F(Comparisons, OfTwiceTheSameFindNothing) {
  evaluate_both([](FakeEngine&, FakeSuite&) {});
  const Comparison same = compared({.slower = 0.01, .worse = 0.1, .by_tokens_per_second = true});
  EXPECT_THAT(same.failures, IsEmpty());
  EXPECT_THAT(same.text, AllOf(Not(HasSubstr("%*")), Not(HasSubstr("other environment"))));
}

TEST_F(Comparisons, SlowerSettingsFailByMoreThanTheLimitAlone) {
  evaluate_both([](FakeEngine& engine, FakeSuite&) {
    engine.seconds = [before = engine.seconds](const Setting& run, int64_t line) {
      return before(run, line) * (run.method() == "bild" ? 1.1 : 1);
    };
  });
  EXPECT_THAT(compared({.slower = 0.05, .worse = {}}).failures,
              ElementsAre(AllOf(HasSubstr(kBild), HasSubstr("slower by 9.1 %"), HasSubstr("speedup 2.00 → 1.82"))));
  EXPECT_THAT(compared({.slower = 0.05, .worse = {}, .by_tokens_per_second = true}).failures,
              ElementsAre(HasSubstr("tokens/s")));
  EXPECT_THAT(compared({.slower = 0.10, .worse = {}}).failures, IsEmpty());
  const std::string text = compared().text;
  EXPECT_LE(widest_line(text), 100u) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("2.00 → 1.82"), HasSubstr("-9.1 %*"), HasSubstr("* more than noise")));
}

TEST_F(Comparisons, ASlowerMachineChangesTokensASecondAndNoSpeedup) {
  evaluate_both([](FakeEngine& engine, FakeSuite&) {
    engine.seconds = [before = engine.seconds](const Setting& run, int64_t line) { return 2 * before(run, line); };
  });
  EXPECT_THAT(compared({.slower = 0.05, .worse = {}}).failures, IsEmpty());
  EXPECT_EQ(compared({.slower = 0.05, .worse = {}, .by_tokens_per_second = true}).failures.size(), 3u);
}

TEST_F(Comparisons, WorseQualityFailsIfItIsMoreThanNoise) {
  const auto worse = [&](int64_t one_in) {
    evaluate_both([one_in](FakeEngine& engine, FakeSuite&) {
      engine.errors = [one_in](const Setting& run, int64_t line) {
        return run.method() == "bild" && line % one_in == 0 ? 1 : 0;
      };
    });
  };
  worse(2);
  EXPECT_THAT(compared({.slower = {}, .worse = 0.5}).failures,
              ElementsAre(AllOf(HasSubstr(kBild), HasSubstr("worse by"), HasSubstr("p = 0.0"))));
  EXPECT_THAT(compared({.slower = {}, .worse = 90}).failures, IsEmpty());
  worse(40);
  EXPECT_THAT(compared({.slower = {}, .worse = 0}).failures, IsEmpty());
  write_file_atomic(file("second"), replace_all(read_file(file("second")), "case:mixed", "case:lc"));
  EXPECT_THAT(compared({.slower = {}, .worse = 0}).failures, Contains(HasSubstr("no comparable quality")));
}

TEST_F(Comparisons, NewAndMissingSettingsAreNamed) {
  evaluate_both([](FakeEngine&, FakeSuite& suite) {
    suite.options.run[0].lists[&DecodeOptions::fallback] = {0.7};
    suite.options.repetitions = 2;
    suite.options.task[0].max_source_tokens = 99;
  });
  const Comparison comparison = compared({.slower = 0.5, .worse = {}});
  EXPECT_THAT(comparison.failures, ElementsAre(HasSubstr("missing")));
  EXPECT_THAT(comparison.text,
              AllOf(HasSubstr(std::string("! missing setting: ") + kBild), HasSubstr("new setting: bild.small.FB0.7"),
                    HasSubstr("other option: repetitions: 1 → 2"),
                    HasSubstr("other option: task/0/max_source_tokens: 0 → 99")));
}

TEST_F(Comparisons, WithoutLinesOnlyTheTestsAreMissing) {
  evaluate_both([](FakeEngine&, FakeSuite&) {});
  std::filesystem::remove(suite_.directory / "first/lines.jsonl");
  EXPECT_THAT(compared().text, HasSubstr("without p-values"));
  write_file_atomic(suite_.directory / "first/lines.jsonl", "{\"task\":\"test\"}\n");
  EXPECT_THAT(error_of([&] { load_evaluation(file("first")); }),
              AllOf(HasSubstr("lines.jsonl:1"), HasSubstr("no line of an evaluation")));
  const std::string line =
      R"({"task":"t","run":"r","turn":0,"tokens":1,"seconds":[],"decode_seconds":[],"statistics":)";
  write_file_atomic(suite_.directory / "first/lines.jsonl", line + "[1]}\n" + line + "[1,2]}\n");
  EXPECT_THAT(error_of([&] { load_evaluation(file("first")); }), HasSubstr("lines.jsonl:2"));
}

}  // namespace
}  // namespace draftsmith::evaluate
