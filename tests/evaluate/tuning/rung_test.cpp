// Rungs and settings that lose quality, by scores and by error rates.
#include "evaluate/tuning/rung.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

// Measures a setting whose every third line has a wrong word, by a metric.
RungSetting measured_by(const metrics::MetricOptions& metric) {
  FakeSuite files(24);
  files.options.run = {FakeSuite::run("bild")};
  files.options.task.front().metric = metric;
  FakeEngine engine;
  engine.errors = [](const Setting& run, int64_t line) { return run.method() == "bild" && line % 3 == 0 ? 1 : 0; };
  const std::vector<Setting> settings = expand_grid(files.options.run.front());
  const RungResult rung = measure_rung({.suite = files.options, .task = "test", .lines = 24, .settings = settings},
                                       files.directory / "rung", engine, {.quiet = true});
  return rung.settings.at(settings.front().label);
}

TEST(Rung, DropsAreLossesWhicheverDirectionIsBetter) {
  metrics::MetricOptions chrf;
  chrf.name = "chrf";
  metrics::MetricOptions wrong;  // counts the wrong words of a line
  wrong.command = "awk -F'\\t' '{print gsub(/w99/, \"\", $1)}'";
  wrong.lower_is_better = true;
  for (const metrics::MetricOptions& metric : {metrics::MetricOptions(), chrf, wrong}) {
    SCOPED_TRACE(metric.kind());
    const RungSetting measured = measured_by(metric);
    EXPECT_GT(measured.drop, 0);
    EXPECT_GT(measured.least_drop, 0);
    EXPECT_LT(measured.least_drop, measured.drop);
  }
  EXPECT_NEAR(measured_by(wrong).drop, 8.0 / 24, 1e-9);  // a wrong word in 8 of the 24 lines
}

}  // namespace
}  // namespace draftsmith::evaluate
