// Which settings theory predicts, and what it makes of acceptance rates and step times.
#include "evaluate/tuning/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/toml.h"
#include "evaluate/theory/formulas.h"
#include "tests/evaluate/fake_engine.h"

namespace draftsmith::evaluate {
namespace {

Setting setting_of(const std::string& keys) {
  Problems problems;
  const auto grid = parse_options<SettingGrid>(parse_toml(keys, "run.toml"), "", problems);
  problems.throw_if_any();
  return expand_grid(grid).front();
}

Setting speculative(const std::string& keys) {
  return setting_of("method = 'speculative'\ndrafter = ['small']\n" + keys);
}

TEST(Forecast, IsForExactMethodsWithConstantWindows) {
  EXPECT_TRUE(is_predictable(speculative("temperature = 0\nwindow = 3"), 1));
  EXPECT_TRUE(is_predictable(speculative("temperature = 1\nwindow = 3"), 1));
  for (const char* other : {"temperature = 0.7", "temperature = 1\ntop_k = 9", "temperature = 1\ntop_p = 0.9",
                            "temperature = 0\nwindow_rule = 'entropy'", "temperature = 0\nlenience = 0.5",
                            "temperature = 0\nbatch_size = 4", "temperature = 1\nnum_samples = 2"}) {
    EXPECT_FALSE(is_predictable(speculative(other), 1)) << other;
  }
  EXPECT_FALSE(is_predictable(speculative("temperature = 0"), 8));
  EXPECT_FALSE(is_predictable(setting_of("method = 'bild'\ndrafter = ['small']"), 1));
  EXPECT_FALSE(is_predictable(setting_of("method = 'assisted'\ndrafter = ['small']"), 1));
  EXPECT_FALSE(is_predictable(setting_of("method = 'greedy'"), 1));
}

TEST(Forecast, IsTheoremOfTheMeasuredPartsAndKept) {
  const FakeSuite files(20);
  const SuiteOptions& suite = files.options;
  FakeEngine engine;
  const RungRequest request{
      .suite = suite,
      .task = suite.task.front().name,
      .lines = 5,
      .settings = {speculative("temperature = 0\nwindow = 2"), speculative("temperature = 1\nwindow = 2"),
                   speculative("temperature = 0\nwindow = 20"), setting_of("method = 'bild'\ndrafter = ['small']")}};
  const Forecast speeds = forecast(request, files.directory / "work", engine);
  const infer::StepCosts costs = engine.step_costs(request.settings[0], {}, {}, 21);
  ASSERT_EQ(speeds.size(), 3u);
  EXPECT_NEAR(speeds.at(request.settings[0].label), walltime_improvement(0.7, 2, costs), 1e-9);
  EXPECT_NEAR(speeds.at(request.settings[1].label), walltime_improvement(0.6, 2, costs), 1e-9);
  // Steps of more than nine tokens are not measured; the engine's lie on a straight line.
  EXPECT_NEAR(speeds.at(request.settings[2].label), walltime_improvement(0.7, 20, costs), 1e-9);
  EXPECT_EQ(engine.decodes, 2);  // each baseline once
  EXPECT_EQ(forecast(request, files.directory / "work", engine), speeds);
  EXPECT_EQ(engine.decodes, 2);
  write_file_atomic(files.directory / "work/theory.json", "[1]");
  EXPECT_EQ(forecast(request, files.directory / "work", engine), speeds);
  EXPECT_EQ(engine.decodes, 4);
}

}  // namespace
}  // namespace draftsmith::evaluate
