#include "base/options_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/toml.h"

namespace draftsmith {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Oven {
  int64_t degrees = 180;
  std::optional<double> hours;
  std::string shelf = "middle";
  bool fan = false;
  std::string owner = "me";
  static Fields<Oven> fields() {
    return Fields<Oven>("oven")
        .add("degrees", &Oven::degrees, GridKey::kList, Range{0, 300}, "Heat.")
        .add("hours", &Oven::hours, GridKey::kList, OuterLoop{}, "Time.")
        .add("shelf", &Oven::shelf, GridKey::kList, Choices{"low", "middle", "high"}, "Place.")
        .add("fan", &Oven::fan, GridKey::kRequired, NoResult{}, "Moves air.")
        .add("owner", &Oven::owner, "Not a key of grids.");
  }
};

struct Menu {
  Oven base;
  OptionLists<Oven> lists;
  std::string name;
  static Fields<Menu> fields() {
    Fields<Menu> fields("menu");
    add_grid(fields, &Menu::base, &Menu::lists);
    fields.add("name", &Menu::name, "Its name.");
    return fields;
  }
};

Menu parsed(const std::string& text, Problems& problems) {
  return parse_options<Menu>(parse_toml(text, "menu"), "", problems);
}

TEST(OptionsGrid, ListsSpanCombinationsAndOuterLoopsComeFirst) {
  Menu menu;
  menu.base.fan = true;
  menu.lists[&Oven::degrees] = {100, 200};
  menu.lists[&Oven::hours] = {1, 2.5};
  std::vector<std::string> points;
  for (const Oven& oven : menu.lists.combinations(menu.base)) {
    EXPECT_TRUE(oven.fan);
    points.push_back(std::to_string(oven.degrees) + " " + std::to_string(*oven.hours).substr(0, 3));
  }
  EXPECT_THAT(points, ElementsAre("100 1.0", "200 1.0", "100 2.5", "200 2.5"));
  EXPECT_TRUE(menu.lists.given(0));
  EXPECT_FALSE(menu.lists.given(2));
  EXPECT_EQ(OptionLists<Oven>().combinations(menu.base).size(), 1U);
}

TEST(OptionsGrid, KeysAreParsedAsListsOrOneValue) {
  Problems problems;
  const Menu menu = parsed("degrees = [100, 200]\nshelf = \"low\"\nfan = true\n", problems);
  EXPECT_EQ(problems.list().size(), 0U);
  EXPECT_THAT(menu.lists[&Oven::degrees], ElementsAre(100, 200));
  EXPECT_THAT(menu.lists[&Oven::shelf], ElementsAre("low"));
  EXPECT_TRUE(menu.base.fan);
}

TEST(OptionsGrid, ElementsAreCheckedAndOtherKeysUnknown) {
  Problems problems;
  parsed("degrees = [100, 500]\nshelf = [\"lov\"]\nfan = true\nowner = \"you\"\n", problems);
  std::string text;
  for (const Problem& problem : problems.list()) text += to_string(problem) + "\n";
  EXPECT_THAT(text, HasSubstr("degrees[1]"));
  EXPECT_THAT(text, HasSubstr("did you mean 'low'?"));
  EXPECT_THAT(text, HasSubstr("unknown key 'owner'"));
}

TEST(OptionsGrid, JsonAndIdentityShowLists) {
  Problems problems;
  const Menu menu = parsed("degrees = [100]\nfan = false\nname = \"bread\"\n", problems);
  EXPECT_EQ(options_to_json(menu).dump(), R"({"degrees":[100],"hours":[],"shelf":[],"fan":false,"name":"bread"})");
  EXPECT_EQ(options_identity(menu).dump(), R"({"degrees":[100],"fan":false,"name":"bread"})");
}

}  // namespace
}  // namespace draftsmith
