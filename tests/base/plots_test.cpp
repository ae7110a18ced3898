#include "base/plots.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace draftsmith {
namespace {

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
