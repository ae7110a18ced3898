// Plots as pictures and as data.
#include "base/plots.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith {
namespace {

using testing::HasSubstr;
using testing::Not;

Plot plot_of(std::vector<PlotPoint> points) {
  PlotSeries series{.name = "one", .style = series_style(0)};
  series.marks = std::move(points);
  return {.label = "a plot", .x_title = "x", .y_title = "y", .series = {series}};
}

TEST(Plot, LeavesOutWhatIsNoNumber) {
  Plot plot = plot_of({{.x = 1, .y = NAN, .title = "no"},
                       {.x = INFINITY, .y = 1, .title = "no"},
                       {.x = 1, .y = 2, .title = "yes", .x_interval = std::pair{NAN, 3.0}}});
  plot.levels = {{NAN, "no"}};
  const std::string svg = plot.svg();
  EXPECT_THAT(svg, HasSubstr("yes"));
  for (const char* no : {"nan", "inf", ">no<"}) EXPECT_THAT(svg, Not(HasSubstr(no)));
  const auto json = plot.json();
  ASSERT_EQ(json.at("series").at(0).at("marks").size(), 1u);
  EXPECT_TRUE(json.at("series").at(0).at("marks").at(0).at("x_interval").is_null());
  EXPECT_TRUE(json.at("levels").empty());
}

TEST(Plot, LabelsDoNotCoverEachOther) {
  const std::string svg = plot_of({{.x = 1, .y = 1, .title = "", .label = "here"},
                                   {.x = 1, .y = 1, .title = "", .label = "there"},
                                   {.x = 2, .y = 2, .title = "", .label = "far"}})
                              .svg();
  EXPECT_THAT(svg, HasSubstr(">far<"));
  EXPECT_THAT(svg, HasSubstr(">here<"));
  // A crowd has no room for all.
  std::vector<PlotPoint> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back({.x = 1, .y = 1, .title = "", .label = "label" + std::to_string(i)});
  const std::string crowded = plot_of(crowd).svg();
  EXPECT_THAT(crowded, HasSubstr(">label0<"));
  EXPECT_THAT(crowded, Not(HasSubstr(">label39<")));
}

TEST(BarPlot, LeavesOutWhatIsNoLength) {
  const BarPlot plot{
      .label = "bars", .unit = "ms", .parts = {"a", "b"}, .bars = {{"x", {NAN, -1}, "0 ms"}, {"y", {1, 2}, ""}}};
  EXPECT_THAT(plot.svg(), Not(HasSubstr("nan")));
  EXPECT_EQ(plot.json().at("rows").at(0).at("values").dump(), "[0.0,0.0]");
  EXPECT_EQ(plot.json().at("parts").at(1).at("style"), "s1");
}

}  // namespace
}  // namespace draftsmith
