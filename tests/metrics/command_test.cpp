// The metric "command": what it asks, what it takes for an answer, and how it refuses everything else.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/options.h"
#include "base/toml.h"
#include "metrics/metric.h"
#include "tests/support/errors.h"

namespace draftsmith::metrics {
namespace {

const std::vector<std::string> kHypotheses{"a b", "c\td"};
const References kReferences{{"a"}, {"c", "e"}};

MetricOptions options_of(CommandOptions command) {
  MetricOptions options;
  static_cast<CommandOptions&>(options) = std::move(command);
  return options;
}

LineStatistics answer_of(const std::string& command, double timeout = 600) {
  return make_metric(options_of({.command = command, .timeout = timeout}))->statistics({kHypotheses, kReferences});
}

std::string refusal_of(const std::string& command, double timeout = 600) {
  return error_of<RunError>([&] { answer_of(command, timeout); });
}

TEST(CommandMetric, ReadsASegmentALine) {
  EXPECT_EQ(command_input({kHypotheses, kReferences, {}}, "tsv"), "a b\ta\nc d\tc\te\n");
  const std::vector<std::string> sources{"A \"B\"", "C\n"};
  EXPECT_EQ(command_input({kHypotheses, kReferences, sources}, "jsonl"),
            "{\"source\":\"A \\\"B\\\"\",\"hypothesis\":\"a b\",\"references\":[\"a\"]}\n"
            "{\"source\":\"C\\n\",\"hypothesis\":\"c\\td\",\"references\":[\"c\",\"e\"]}\n");
  EXPECT_EQ(command_input({{kHypotheses.data(), 1}, {{"a"}}, {}}, "jsonl"),
            "{\"hypothesis\":\"a b\",\"references\":[\"a\"]}\n");
}

TEST(CommandMetric, ScoresTheMeanOfTheLines) {
  const LineStatistics statistics = answer_of("printf '0.5\\n +1.5e0\\r\\n'");
  EXPECT_THAT(statistics.values, ElementsAre(0.5, 1, 1.5, 1));
  const auto metric = make_metric(
      options_of({.command = "python3 /x/score.py", .label = "mine", .point = 0.01, .lower_is_better = true}));
  EXPECT_DOUBLE_EQ(metric->score(statistics.sum(), 0), 1);
  EXPECT_THAT(metric->scores(), ElementsAre("mine"));
  EXPECT_EQ(metric->digits(), 4);
  EXPECT_TRUE(metric->lower_is_better());
  EXPECT_EQ(metric->signature(kReferences),
            "nrefs:var|command:python3 /x/score.py|input:tsv|lines:mean|version:draftsmith-0.1.0");
  EXPECT_EQ(metric->text(statistics.sum(), "s"), "mine|s = 1.0000\n");
}

TEST(CommandMetric, GivesTheCommandTheLines) {
  EXPECT_THAT(answer_of("awk -F'\\t' '{print NF}'").values, ElementsAre(2, 1, 3, 1));
}

TEST(CommandMetric, IsNamedAfterItsProgram) {
  const auto name = [](const std::string& command) { return command_label({.command = command, .label = ""}); };
  EXPECT_EQ(name("OMP_NUM_THREADS=2 /usr/bin/comet-score --quiet"), "comet-score");
  EXPECT_EQ(name("(cat)"), "_cat_");
  EXPECT_EQ(name("difference"), "command");
  EXPECT_EQ(name("A=1"), "command");
}

TEST(CommandMetric, RefusesEveryOtherAnswer) {
  EXPECT_THAT(refusal_of("echo 1"),
              AllOf(HasSubstr("`echo 1`"), HasSubstr("too few lines"), HasSubstr("2 lines"), HasSubstr("1 lines")));
  EXPECT_THAT(refusal_of("printf '1\\n2\\n3\\n'"), AllOf(HasSubstr("too many lines"), HasSubstr("3 lines")));
  EXPECT_THAT(refusal_of("printf '1\\n\\n'"), HasSubstr("line 2 of the command's output is no number"));
  EXPECT_THAT(refusal_of("printf '1\\nscore: 2\\n'"), AllOf(HasSubstr("line 2"), HasSubstr("'score: 2'")));
  for (const std::string bad : {"nan", "inf", "-inf", "1e999", "1 2", "0x10"}) {
    EXPECT_THAT(refusal_of("printf '1\\n" + bad + "\\n'"), HasSubstr("line 2")) << bad;
  }
}

TEST(CommandMetric, SaysHowACommandDied) {
  EXPECT_THAT(refusal_of("echo no model >&2; printf '1\\n2\\n'; exit 3"),
              AllOf(HasSubstr("the command failed"), HasSubstr("exit code 3"), HasSubstr("no model")));
  EXPECT_THAT(refusal_of("no-such-program-here"), AllOf(HasSubstr("exit code 127"), HasSubstr("in PATH?")));
  EXPECT_THAT(refusal_of("kill -9 $$"), AllOf(HasSubstr("signal 9"), HasSubstr("memory")));
  EXPECT_THAT(refusal_of("sleep 60", 0.05), AllOf(HasSubstr("took too long"), HasSubstr("within 0.05 s")));
  EXPECT_THAT(refusal_of("yes"), HasSubstr("wrote without end"));
}

MetricOptions parsed(const std::string& toml, Problems& problems) {
  return parse_options<MetricOptions>(parse_toml(toml, "suite.toml"), "metric", problems);
}

TEST(CommandMetric, NeedsNoNameBesideTheCommand) {
  Problems problems;
  const MetricOptions options = parsed("command = \"x\"\nlabel = \"comet\"\npoint = 0.01", problems);
  EXPECT_EQ(text_of(problems.list()), "");
  EXPECT_EQ(options.kind(), "command");
  EXPECT_EQ(make_metric(options)->leading_score(), "comet");
  EXPECT_TRUE(options.scored());
  EXPECT_EQ(MetricOptions().kind(), "bleu");
}

TEST(CommandMetric, OptionsThatDoNotFitAreErrors) {
  const auto problem_of = [](const std::string& toml) {
    Problems problems;
    parsed(toml, problems);
    return text_of(problems.list());
  };
  EXPECT_THAT(problem_of("name = \"command\""), HasSubstr("the metric needs a command"));
  EXPECT_THAT(problem_of("command = \" \""), HasSubstr("the metric needs a command"));
  EXPECT_THAT(problem_of("name = \"rouge\"\ncommand = \"x\""), HasSubstr("only the metric command runs one"));
  EXPECT_THAT(problem_of("command = \"x\"\nlabel = \"p_value\""), HasSubstr("a score cannot have this name"));
  EXPECT_THAT(problem_of("command = \"x\"\nlabel = \"<b>\""), HasSubstr("a score cannot have this name"));
  EXPECT_THAT(problem_of("command = \"x\"\npoint = 0"), HasSubstr("point"));
  EXPECT_THAT(problem_of("command = \"x\"\ninput = \"xml\""), HasSubstr("tsv"));
  EXPECT_THAT(problem_of("name = \"chrf\"\ntokenize = \"zh\"\nstemmer = true\npoint = 3"),
              AllOf(HasSubstr("tokenize: is an option of the metric bleu"), HasSubstr("stemmer"), HasSubstr("point")));
  EXPECT_EQ(problem_of("name = \"chrf\"\nchrf_word_order = 2"), "");
}

}  // namespace
}  // namespace draftsmith::metrics
