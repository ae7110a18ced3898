// Tasks that a command scores: it is tried first, asked once for equal outputs, and a failure costs no measurement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/comparison/comparison.h"
#include "evaluate/report/report.h"
#include "evaluate/results/summary.h"
#include "tests/evaluate/fake_engine.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Prints the share of a hypothesis' words that are the reference's.
constexpr const char* kWords =
    "awk -F'\\t' '{n = split($1, h, \" \"); split($2, r, \" \"); s = 0;"
    " for (i = 1; i <= n; i++) if (h[i] == r[i]) s++; print (n ? s / n : 0)}'";

class CommandSuite : public testing::Test {
 protected:
  void SetUp() override {
    suite_.options.run = {FakeSuite::run("bild"), FakeSuite::run("assisted")};
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
  int64_t calls() const { return std::ssize(lines_of(read_file(suite_.directory / "calls"))); }
  // Returns a command that notes in a file that it was called.
  std::string counting(const std::string& command) const {
    return "echo call >> " + (suite_.directory / "calls").string() + "; " + command;
  }

  FakeSuite suite_;
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
  EXPECT_EQ(report_html(back.results), read_file(suite_.directory / "out/report.html"));
  EXPECT_THAT(results_table(back.results), HasSubstr("words"));
  const Comparison comparison = compare(back, back, {.slower = {}, .worse = 0}, {.resamples = 20});
  EXPECT_THAT(comparison.text, AllOf(HasSubstr("words"), testing::Not(HasSubstr("without p-values"))));
  EXPECT_THAT(comparison.failures, testing::IsEmpty());
}

TEST_F(CommandSuite, OfAFileWithAnotherKindOfCommandNothingIsRead) {
  suite_.evaluate(engine_);
  const auto refusal = [&](const std::string& key, const nlohmann::ordered_json& value) {
    auto json = nlohmann::ordered_json::parse(read_file(suite_.directory / "out/results.json"));
    json.at("tasks").at(0).at("command_metric")[key] = value;
    return error_of([&] { results_from_json(json, "here"); });
  };
  EXPECT_THAT(refusal("label", "<b>"), HasSubstr("tasks[0].command_metric.label"));
  EXPECT_THAT(refusal("label", "difference"), HasSubstr("expected: a score's name"));
  EXPECT_THAT(refusal("point", 0), HasSubstr("tasks[0].command_metric.point"));
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

TEST_F(CommandSuite, WhatTheCommandAnsweredIsKept) {
  // The trial has two lines, other outputs 24: of these greedy decoding's come last, after bild's.
  const std::string ready = (suite_.directory / "ready").string();
  script("lines=$(cat); case $lines in *w99*) ;; *) [ $(printf '%s\\n' \"$lines\" | wc -l) = 2 ] || [ -e " + ready +
         " ] || exit 5;; esac; printf '%s\\n' \"$lines\" | " + kWords);
  score_by(counting("sh " + (suite_.directory / "score.sh").string()));
  EXPECT_THAT(error_of<RunError>([&] { suite_.evaluate(engine_); }), HasSubstr("exit code 5"));
  write_text(ready, "");
  const int64_t before = calls();
  FakeEngine again;
  again.errors = engine_.errors;
  EXPECT_TRUE(suite_.evaluate(again).failures.empty());
  EXPECT_EQ(calls() - before, 2) << "the trial, and greedy decoding's outputs";
  EXPECT_TRUE(again.counted.empty());
}

TEST_F(CommandSuite, SourcesComeWithoutPrefix) {
  suite_.options.run.clear();
  suite_.options.task.front().prefix = "0";
  score_by("tee " + (suite_.directory / "asked").string() + " | sed 's/.*/1/'");
  suite_.options.task.front().metric.input = "jsonl";
  suite_.evaluate(engine_);
  const std::vector<std::string> asked = lines_of(read_file(suite_.directory / "asked"));
  ASSERT_EQ(asked.size(), 24u);
  EXPECT_EQ(asked.front(),
            "{\"source\":\"6\",\"hypothesis\":\"w10 w11 w12 w13 w14 w15\","
            "\"references\":[\"w10 w11 w12 w13 w14 w15\"]}");
}

}  // namespace
}  // namespace draftsmith::evaluate
