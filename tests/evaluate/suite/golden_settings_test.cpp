// Settings, results' options and stage identities of a suite that uses every key, compared with what version 2a718b9
// made of it (golden_settings.json): finished recipes stay finished, and files and results keep their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/toml.h"
#include "evaluate/suite/setting_grid.h"
#include "tests/support/paths.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kFolder = draftsmith::test::source_dir() / "tests/evaluate/suite";

SuiteOptions golden_suite() {
  Problems problems;
  auto suite = parse_options<SuiteOptions>(load_toml(kFolder / "golden_settings.toml"), "", problems);
  problems.throw_if_any();
  return suite;
}

ordered_json golden() {
  return ordered_json::parse(read_file(kFolder / "golden_settings.json"));
}

TEST(GoldenSettings, LabelsGroupsAndParametersAreAsEver) {
  const ordered_json expected = golden().at("settings");
  const std::vector<Setting> settings = expand_settings(golden_suite());
  ASSERT_EQ(settings.size(), expected.size());
  for (size_t i = 0; i < settings.size(); ++i) {
    const Setting& setting = settings[i];
    const ordered_json found{{"label", setting.label},         {"group", setting.group},
                             {"method", setting.method()},     {"drafter_label", setting.drafter_label()},
                             {"lossless", setting.lossless()}, {"params", setting.params()}};
    EXPECT_EQ(found.dump(), expected[i].dump());  // dumped, since the order of keys counts as well
  }
}

TEST(GoldenSettings, IdentitiesAndResultsOptionsAreAsEver) {
  const SuiteOptions suite = golden_suite();
  const ordered_json expected = golden();
  EXPECT_EQ(options_identity(suite).at("run").dump(), expected.at("identity").dump());
  EXPECT_EQ(options_to_json(suite).at("run").dump(), expected.at("options").dump());
  EXPECT_EQ(options_hash(suite), expected.at("hash"));
}

TEST(GoldenSettings, TheDumpedSuiteIsTheSameSuite) {
  const SuiteOptions suite = golden_suite();
  Problems problems;
  const auto again = parse_options<SuiteOptions>(parse_toml(dump_options(suite), "dump"), "", problems);
  EXPECT_EQ(problems.list().size(), 0U);
  EXPECT_EQ(options_to_json(again), options_to_json(suite));
}

}  // namespace
}  // namespace draftsmith::evaluate
