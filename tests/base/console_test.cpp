// Progress, tables and plots.
#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "base/plots.h"
#include "base/table.h"
#include "base/utf8.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

// A Progress on a clock that the test moves, with what it printed.
class ProgressTest : public testing::Test {
 protected:
  Progress make(ProgressOptions options) {
    return Progress(
        std::move(options), [this] { return now_; }, [this](const std::string& text) { out_.push_back(text); });
  }
  void pass(double seconds) {
    now_ += std::chrono::duration_cast<Progress::Clock::duration>(std::chrono::duration<double>(seconds));
  }

  Progress::Clock::time_point now_{};
  std::vector<std::string> out_;
};

TEST_F(ProgressTest, LinesComeEveryTenSecondsWithRateAndTimeLeft) {
  Progress progress = make({.style = ProgressStyle::kLines, .title = "tokenizing", .unit = "lines", .total = 1000});
  for (int i = 0; i < 25; ++i) {
    pass(1);
    progress.advance(20);
  }
  EXPECT_THAT(out_, ElementsAre("tokenizing  20% 200/1000 lines, 20/s, 40s left\n",
                                "tokenizing  40% 400/1000 lines, 20/s, 30s left\n"));
  progress.advance(500);
  progress.finish();
  progress.finish();
  ASSERT_EQ(out_.size(), 3u);
  EXPECT_EQ(out_.back(), "tokenizing 100% 1000/1000 lines, 40/s, took 25s\n");
}

TEST_F(ProgressTest, LinesComeWhileNothingIsDoneYet) {
  Progress progress = make({.style = ProgressStyle::kLines, .title = "outputs", .unit = "outputs", .total = 100});
  Progress exporting = make({.style = ProgressStyle::kLines, .title = "exporting", .unit = {}});
  pass(15);
  progress.tick();
  exporting.tick();
  pass(5);
  progress.tick();  // not due yet
  progress.advance(20);
  pass(20);
  progress.tick();
  EXPECT_THAT(out_, ElementsAre("outputs   0% 0/100 outputs, 15s so far\n", "exporting, 15s so far\n",
                                "outputs  20% 20/100 outputs, 0.50/s, 2m40s left\n"));
  progress.finish();
  pass(20);
  progress.tick();
  EXPECT_EQ(out_.size(), 4u) << "nothing after the end";
}

TEST_F(ProgressTest, BarIsRedrawnInPlaceAndEndsItsLine) {
  {
    Progress progress = make({.style = ProgressStyle::kBar, .title = "train", .unit = "steps", .total = 4});
    pass(1);
    progress.advance();
    progress.set_note("loss 2.31");
    progress.advance();  // not due yet: no time has passed
    pass(1);
    progress.advance();
  }
  EXPECT_THAT(
      out_, ElementsAre("\rtrain [######..................]  25% 1/4 steps, 1/s, 3.0s left\x1b[K",
                        "\rtrain [##################......]  75% 3/4 steps, 1.50/s, 0.7s left, loss 2.31\x1b[K", "\n"));
}

TEST_F(ProgressTest, QuietPrintsNothing) {
  {
    Progress progress = make({.style = ProgressStyle::kQuiet, .title = "x", .unit = "", .total = 10});
    pass(100);
    progress.advance(10);
    progress.finish();
  }
  EXPECT_THAT(out_, ElementsAre());
  EXPECT_EQ(progress_style(true), ProgressStyle::kQuiet);
}

TEST(HumanNumbers, AreShort) {
  EXPECT_EQ(human_duration(0.84), "0.8s");
  EXPECT_EQ(human_duration(42), "42s");
  EXPECT_EQ(human_duration(59.6), "1m00s");
  EXPECT_EQ(human_duration(187), "3m07s");
  EXPECT_EQ(human_duration(3725), "1h02m");
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(0.5), "0.50");
  EXPECT_EQ(human_count(421), "421");
  EXPECT_EQ(human_count(12'345), "12.3k");
  EXPECT_EQ(human_count(1'250'000), "1.25M");
  EXPECT_EQ(human_count(999'700), "1.00M");
}

TEST(Table, AlignsByDisplayWidth) {
  Table table({{"method", Align::kLeft}, {"BLEU"}, {"speedup"}});
  table.add_row({"grün", "31.2", "1.00"});
  table.add_rule();
  table.add_row({"日本", "9.9", "12.34"});
  EXPECT_EQ(table.text(),
            "method  BLEU  speedup\n"
            "---------------------\n"
            "grün    31.2     1.00\n"
            "---------------------\n"
            "日本     9.9    12.34\n");
  EXPECT_THROW(table.add_row({"x"}), std::logic_error);
}

TEST(Table, WholeNamesAreBrokenByColumnsAndKeepCharactersWhole) {
  Table table({{"name", Align::kLeft}, {"value"}});
  table.add_row({"grün.übergrößengröße", "1"});
  table.add_row({"grün.öööööööööööööööööööö", "2"});
  table.add_row({"ööööööööööööööööööööää", "3"});
  table.add_row({"日本語日本語日本語日本語", "4"});
  EXPECT_EQ(table.text(27),
            "name                  value\n"
            "---------------------------\n"
            "grün.übergrößengröße      1\n"
            "grün.                     2\n"
            "  öööööööööööööööööö\n"
            "  öö\n"
            "öööööööööööööööööööö      3\n"
            "  ää\n"
            "日本語日本語日本語日      4\n"
            "  本語\n");
}

TEST(Wrapped, BreaksAtBlanksAndEndsNoLineInThem) {
  EXPECT_EQ(wrapped("", 20, 6, 6), "\n");
  EXPECT_EQ(wrapped("grün ist grün", 10, 2, 4), "  grün ist\n    grün\n");
}

TEST(Table, IsTheSameAsHtmlCsvAndMarkdown) {
  Table table({{"run", Align::kLeft}, {"empty"}, {"a|b"}});
  table.add_row({"<1>, \"x\"", "", "2"});
  table.add_rule();
  table.add_row({"two", "", "3"});
  table.drop_empty_columns();
  EXPECT_EQ(table.html(),
            "<table>\n<thead><tr><th scope=\"col\" class=\"left\">run</th><th scope=\"col\">a|b</th></tr></thead>\n"
            "<tbody>\n<tr><th scope=\"row\" class=\"left\">&lt;1&gt;, &quot;x&quot;</th><td>2</td></tr>\n"
            "<tr><th scope=\"row\" class=\"left\">two</th><td>3</td></tr>\n</tbody></table>\n");
  EXPECT_EQ(table.csv(), "run,a|b\n\"<1>, \"\"x\"\"\",2\ntwo,3\n");
  EXPECT_EQ(table.markdown(), "| run | a\\|b |\n|:---|---:|\n| <1>, \"x\" | 2 |\n| two | 3 |\n");
}

TEST(Table, HtmlSetsIntervalsApartAndExplainsHeaders) {
  Table table({{"speedup", Align::kRight, "tokens a second \"over\" greedy's"}});
  table.add_row({"1.93 [1.91, 1.95]"});
  table.add_row({"a name [of <some> kind]"});
  const std::string html = table.html();
  EXPECT_THAT(html, testing::AllOf(HasSubstr("title=\"tokens a second &quot;over&quot; greedy's\""),
                                   HasSubstr("<td>1.93 <span class=\"interval\">[1.91, 1.95]</span></td>"),
                                   HasSubstr("<td>a name [of &lt;some&gt; kind]</td>")));
}

TEST(CutToWidth, CountsColumnsAndKeepsCharactersWhole) {
  EXPECT_EQ(cut_to_width("grüner", 6), "grüner");
  EXPECT_EQ(cut_to_width("grüner", 4), "grü…");
  EXPECT_EQ(cut_to_width("日本語", 4), "日…");
}

TEST(Plots, LeaveOutWhatIsNoNumber) {
  PlotSeries series{.name = "one", .style = series_style(8)};
  series.marks = {{.x = 1, .y = NAN, .title = "no"},
                  {.x = INFINITY, .y = 1, .title = "no"},
                  {.x = 1, .y = 2, .title = "yes", .x_interval = std::pair{NAN, 3.0}}};
  const Plot plot{.label = "a plot", .x_title = "x", .y_title = "y", .series = {series}, .levels = {{NAN, "no"}}};
  const auto json = plot.json();
  EXPECT_EQ(json.at("series").at(0).at("style"), "s0");
  EXPECT_EQ(json.at("series").at(0).at("filled"), false);
  ASSERT_EQ(json.at("series").at(0).at("marks").size(), 1u);
  EXPECT_TRUE(json.at("series").at(0).at("marks").at(0).at("x_interval").is_null());
  EXPECT_TRUE(json.at("levels").empty());
  const BarPlot bars{.label = "bars", .unit = "ms", .parts = {"a", "b"}, .bars = {{"x", {NAN, -1}, "0 ms"}}};
  EXPECT_EQ(bars.json().at("rows").at(0).at("values").dump(), "[0.0,0.0]");
  EXPECT_EQ(bars.json().at("parts").at(1).at("style"), "s1");
}

}  // namespace
}  // namespace draftsmith
