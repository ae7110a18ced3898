#include "base/toml.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

std::string toml_syntax_error(const std::string& text) {
  return error_of([&] { parse_toml(text, "recipe.toml"); });
}

constexpr const char* kRecipe =
    "title = 'x'\n"
    "[stage.train]\nsteps = 100\noptimizer = {name = 'adamw', lr = 0.1}\n"
    "[[run]]\nname = 'greedy'\n"
    "[[run]]\nname = 'bild'\nfallback = 0.5\n";

// kRecipe with `assignment` applied; problems are thrown.
toml::table with(const std::string& assignment) {
  toml::table root = parse_toml(kRecipe, "recipe.toml");
  Problems problems;
  apply_overlays(root, {assignment}, problems);
  problems.throw_if_any();
  return root;
}

std::string overlay_error(const std::string& assignment) {
  return error_of([&] { with(assignment); });
}

TEST(Toml, SyntaxErrorsNameFileLineAndColumn) {
  EXPECT_THAT(toml_syntax_error("a = 1\nb = = 2\n"), HasSubstr("recipe.toml:2:5: not valid TOML"));
  EXPECT_THAT(toml_syntax_error("a = 1\na = 2\n"), HasSubstr("recipe.toml:2:"));
  EXPECT_THAT(toml_syntax_error("a = '\xff'"), HasSubstr("not valid UTF-8 (byte offset 5)"));
  EXPECT_EQ(toml_syntax_error("a = 1\n"), "no error");
  std::string deep = "a";
  for (int i = 0; i < 60000; ++i) deep += i % 2 == 0 ? " . a" : ".'b'";
  for (const std::string& text : {deep + " = 1", "x = {y = \"\"\"\n\"\"\"\"\", " + deep + " = 1}", "[" + deep + "]"}) {
    EXPECT_THAT(toml_syntax_error("\n" + text), HasSubstr("a key has too many parts"));
  }
  EXPECT_THAT(overlay_error("stage.train.x={" + deep + " = 1}"), HasSubstr("a key has too many parts"));
  EXPECT_THAT(overlay_error("stage." + deep + "=1"), HasSubstr("malformed assignment"));
  EXPECT_EQ(toml_syntax_error("# " + deep + "\na = '''" + deep + "''' # it's\nb = \"\\\"" + deep + "\""), "no error");
}

TEST(Overlay, ReplacesValuesOfEveryType) {
  EXPECT_EQ(with("stage.train.steps=5").at_path("stage.train.steps").value<int64_t>(), 5);
  EXPECT_EQ(with("stage.train.steps = 1e-4").at_path("stage.train.steps").value<double>(), 1e-4);
  EXPECT_EQ(with("stage.train.steps=-.5").at_path("stage.train.steps").value<double>(), -0.5);
  EXPECT_EQ(with("stage.train.steps=.5x").at_path("stage.train.steps").value<std::string>(), ".5x");
  EXPECT_EQ(with("stage.train.steps=true").at_path("stage.train.steps").value<bool>(), true);
  EXPECT_EQ(with("stage.train.steps=[1, 2]").at_path("stage.train.steps").as_array()->size(), 2u);
  EXPECT_EQ(with("stage.train.optimizer.name=adafactor").at_path("stage.train.optimizer.name").value<std::string>(),
            "adafactor");
  EXPECT_EQ(with("title=\"two words\"")["title"].value<std::string>(), "two words");
  EXPECT_EQ(with("title=a=b # c")["title"].value<std::string>(), "a=b # c");
  EXPECT_EQ(with("title=")["title"].value<std::string>(), "");
  EXPECT_EQ(with("title=1\ny = 2")["title"].value<std::string>(), "1\ny = 2");
}

TEST(Overlay, FindsElementsOfArraysByNameOrIndex) {
  EXPECT_EQ(with("run.bild.fallback=0.25").at_path("run[1].fallback").value<double>(), 0.25);
  EXPECT_EQ(with("run.0.fallback=0.75").at_path("run[0].fallback").value<double>(), 0.75);
}

TEST(Overlay, CreatesTablesInsideKnownOnesOnly) {
  EXPECT_EQ(with("stage.train.schedule.warmup=5").at_path("stage.train.schedule.warmup").value<int64_t>(), 5);
  EXPECT_THAT(overlay_error("stagee.train.steps=5"),
              HasSubstr("there is no table 'stagee'\n  hint:     did you mean 'stage'?"));
  EXPECT_THAT(overlay_error("run.bidl.fallback=5"), HasSubstr("did you mean 'bild'?"));
  EXPECT_THAT(overlay_error("title.x=5"), HasSubstr("there is no table 'title'"));
  EXPECT_THAT(overlay_error("run.fallback=5"), HasSubstr("'run' is an array"));
}

TEST(Overlay, MalformedAssignmentsAreExplained) {
  for (const char* bad : {"steps", "=5", "a..b=5", ".a=5", "a.\"b=5"}) {
    EXPECT_THAT(overlay_error(bad), HasSubstr("malformed assignment")) << bad;
  }
  EXPECT_THAT(overlay_error("title=[1, "), HasSubstr("the value is not valid TOML"));
  EXPECT_THAT(overlay_error("title=\"open"), HasSubstr("--set title=\"open"));
}

TEST(Overlay, IsNamedAsTheSourceOfItsValue) {
  EXPECT_EQ(location_of(*with("stage.train.steps=7").at_path("stage.train.steps").node()), "--set stage.train.steps=7");
}

TEST(TomlText, QuotedStringsParseBack) {
  const std::string awkward = "q\" b\\ n\n t\t c\x01 d\x7f u\xc3\xbc";
  EXPECT_EQ(parse_toml("text = " + toml_quoted(awkward), "t")["text"].value<std::string>(), awkward);
}

}  // namespace
}  // namespace draftsmith
