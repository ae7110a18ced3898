// Tuning a router: what is run for it, and which of the measured settings becomes the default of which copy.
#include "evaluate/router_tuning.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluate/suite/setting_grid.h"
#include "tests/support/errors.h"

namespace draftsmith::evaluate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A suite of two routers, each with its own task, and results in which the setting of each label decodes so fast.
class TunedRouters : public testing::Test {
 protected:
  TunedRouters() {
    for (const char* task : {"val", "more"}) suite_.task.emplace_back().name = task;
    add_run("a", "val");
    add_run("b", "more");
  }

  SettingGrid& add_run(const std::string& router, const std::string& task) {
    SettingGrid& run = suite_.run.emplace_back();
    run.name = router + std::to_string(suite_.run.size());
    run.decode.method = "speculative";
    run.drafter = {"small"};
    run.lists[&DecodeOptions::temperature] = {0};
    run.decode.window_rule = "router";
    run.decode.router = router;
    run.lists[&DecodeOptions::threshold] = {0.5, 0.7, 0.9};
    run.lists[&DecodeOptions::max_draft] = {8};
    run.choose_on = task;
    return run;
  }

  // Every setting at the speed that `speed` says, on every task, those it is not tuned on ten times as fast.
  template <class SpeedOf>
  std::vector<TunedRouter> tuned(const SpeedOf& speed) const {
    Results results;
    const auto result_of = [](const std::string& name, double tokens_per_second) {
      SettingResult result;
      result.name = name;
      result.speed.tokens_per_second = tokens_per_second;
      return result;
    };
    for (const TaskOptions& task : suite_.task) {
      TaskResult& measured = results.tasks.emplace_back();
      measured.name = task.name;
      measured.baseline = result_of("greedy", 9000);
      for (const Setting& setting : expand_settings(suite_)) {
        if (setting.decode.router.empty()) continue;
        const double factor = setting.choose_on == task.name ? 1 : 10;
        measured.settings.push_back(result_of(setting.label, factor * speed(setting)));
      }
    }
    return tuned_routers(suite_, expand_settings(suite_), results);
  }

  SuiteOptions suite_;
};

std::string tuning_error(const SuiteOptions& suite) {
  return error_of([&] { with_tuning_grids(suite); });
}

TEST_F(TunedRouters, HaveAGridWhereTheSuiteHasNone) {
  suite_.run[0].decode.window_rule = "fixed";
  suite_.run[0].lists[&DecodeOptions::threshold] = {};
  SettingGrid& run = suite_.run[1];
  run.lists[&DecodeOptions::threshold].clear();
  run.lists[&DecodeOptions::max_draft].clear();
  run.choose_on = "";
  const SuiteOptions suite = with_tuning_grids(suite_);
  EXPECT_EQ(suite.run[1].choose_on, "val");
  EXPECT_GT(suite.run[1].lists[&DecodeOptions::threshold].size(), 3U);
  EXPECT_GT(suite.run[1].lists[&DecodeOptions::max_draft].size(), 1U);
  EXPECT_TRUE(suite.run[0].lists[&DecodeOptions::threshold].empty());
  suite_.run.pop_back();
  EXPECT_THAT(tuning_error(suite_), HasSubstr("no router to tune"));
}

TEST_F(TunedRouters, HaveAGridForSamplingOnATaskWithoutMetricToo) {
  for (TaskOptions& task : suite_.task) task.metric.name = "none";
  SettingGrid& run = suite_.run[1];
  run.lists[&DecodeOptions::temperature] = {1};
  run.lists[&DecodeOptions::threshold].clear();
  EXPECT_GT(with_tuning_grids(suite_).run[1].lists[&DecodeOptions::threshold].size(), 3U);
}

TEST_F(TunedRouters, AreNotTunedOnTestDataWithoutAWord) {
  for (SettingGrid& run : suite_.run) run.choose_on = "";
  EXPECT_THAT(tuning_error(suite_), AllOf(HasSubstr("validation data"), HasSubstr("choose_on")));
  suite_.run[0].choose_on = "val";
  EXPECT_EQ(tuning_error(suite_), "no error");
  suite_.run[1].decode.acceptance = "rollback";  // fast, and another text
  EXPECT_THAT(tuning_error(suite_), HasSubstr("no run can tune the router b"));
}

TEST_F(TunedRouters, OfOneDrafterAreToldApart) {
  EXPECT_EQ(tuning_error(suite_), "no error");
  for (SettingGrid& run : suite_.run) run.name = "";
  EXPECT_THAT(tuning_error(suite_), HasSubstr("the same name"));
  suite_.run[1].drafter = {"other"};
  EXPECT_EQ(tuning_error(suite_), "no error");
  suite_.run[1] = suite_.run[0];
  suite_.run[1].choose_on = "more";
  EXPECT_THAT(tuning_error(suite_), AllOf(HasSubstr("tuned on one task"), HasSubstr("val"), HasSubstr("more")));
}

TEST_F(TunedRouters, AreTheFastestOfTheirOwnTask) {
  const auto found = tuned([](const Setting& run) {
    const double best = run.decode.router == "a" ? 0.7 : 0.9;
    return 500 - 1000 * std::abs(*run.decode.threshold - best);
  });
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].threshold, 0.7);
  EXPECT_EQ(found[0].task, "val");
  EXPECT_EQ(found[0].place, "router.small.a1");
  EXPECT_EQ(found[0].tokens_per_second, 500);
  EXPECT_NEAR(found[0].slowest, 300, 1e-6);
  EXPECT_EQ(found[0].settings, 3);
  EXPECT_EQ(found[1].threshold, 0.9);
  EXPECT_EQ(found[1].task, "more");
  EXPECT_EQ(found[1].place, "router.small.b2");
}

TEST_F(TunedRouters, AreComparedUnderTheSameConditions) {
  suite_.run.pop_back();
  suite_.run[0].lists[&DecodeOptions::temperature] = {1, 0};
  suite_.run[0].lists[&DecodeOptions::num_samples] = {4, 1};
  SettingGrid& lossy = add_run("a", "val");
  lossy.decode.acceptance = "rollback";
  const auto found = tuned([](const Setting& run) {
    const bool usual = run.temperature() == 0 && run.decode.num_samples == 1 && run.equals_greedy();
    return usual ? 100 * *run.decode.threshold : 1000 - *run.decode.threshold;  // the others are faster
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].temperature, 0);
  EXPECT_EQ(found[0].threshold, 0.9);
  EXPECT_EQ(found[0].tokens_per_second, 90);
  EXPECT_EQ(found[0].settings, 3);
  EXPECT_EQ(found[0].place, "router");
}

}  // namespace
}  // namespace draftsmith::evaluate
