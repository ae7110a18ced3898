// Short names of settings, and which settings a plot shows.
#include "evaluate/report/setting_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/evaluate/report/results_of_settings.h"

namespace draftsmith::evaluate {
namespace {

TEST(SettingNames, KeepWhatTellsSettingsApart) {
  const auto names = short_names(made_task({made_lossless("assisted.small", "assisted", 2),
                                            made_lossless("speculative.small.T0.G4", "speculative", 2),
                                            made_setting("bild.small.FB0.5.RB1", "bild", 2, 29, "small"),
                                            made_setting("bild.small.FB0.5.RB2", "bild", 2, 29, "small"),
                                            made_setting("bild.small.FB0.7.RB1", "bild", 2, 29, "small"),
                                            made_setting("my own name", "bild", 2, 29, "small")}));
  EXPECT_EQ(names.at("greedy"), "greedy");
  EXPECT_EQ(names.at("assisted.small"), "assisted · small");
  EXPECT_EQ(names.at("speculative.small.T0.G4"), "speculative · small");
  EXPECT_EQ(names.at("bild.small.FB0.5.RB1"), "bild · small · FB0.5 · RB1");
  EXPECT_EQ(names.at("bild.small.FB0.5.RB2"), "bild · small · RB2");
  EXPECT_EQ(names.at("bild.small.FB0.7.RB1"), "bild · small · FB0.7");
  EXPECT_EQ(names.at("my own name"), "my own name");
}

TEST(SettingNames, AreUnique) {
  const std::string first = "bild.small." + std::string(60, 'x') + "1";
  const std::string second = "bild.small." + std::string(60, 'x') + "2";
  const auto names = short_names(
      made_task({made_setting(first, "bild", 2, 29, "small"), made_setting(second, "bild", 2, 29, "small")}));
  EXPECT_EQ(names.at(first), first);
  EXPECT_EQ(names.at(second), second);
}

TEST(SettingNames, TheFastestSettingsKeepTheirOrder) {
  const TaskResult task = made_task({made_lossless("a", "assisted", 2), made_lossless("b", "assisted", 3),
                                     made_lossless("c", "assisted", 1.5), made_lossless("d", "assisted", 4)});
  const auto drafts = [](const SettingResult& setting) { return !setting.drafter_name().empty(); };
  std::vector<std::string> names;
  for (const auto* setting : fastest_settings(task, 3, drafts)) names.push_back(setting->name);
  EXPECT_THAT(names, testing::ElementsAre("a", "b", "d"));
  EXPECT_EQ(left_out_words(task, 3, drafts), " Shown: the 3 fastest of 4.");
  EXPECT_EQ(left_out_words(task, 4, drafts), "");
}

}  // namespace
}  // namespace draftsmith::evaluate
