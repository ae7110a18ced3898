// Fields of options structs, and grids over them.
#include "base/options.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/options_grid.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith {
namespace {

struct InnerOptions {
  double rate = 0.1;
  std::string mode = "plain";
  bool operator==(const InnerOptions&) const = default;
  static Fields<InnerOptions> fields() {
    return Fields<InnerOptions>("inner options")
        .add("rate", &InnerOptions::rate, Above{0}, Range{0, 1}, "A rate.")
        .add("mode", &InnerOptions::mode, Choices{"plain", "fancy", "linear"}, "How it is done.")
        .check([](const InnerOptions& options, const std::string& where, Problems& problems) {
          if (options.mode == "fancy" && options.rate > 0.5) {
            problems.add({.where = where, .what = "fancy needs a rate of at most 0.5"});
          }
        });
  }
};

struct BaseOptions {
  std::string device = "auto";
  bool operator==(const BaseOptions&) const = default;
  static Fields<BaseOptions> fields() {
    return Fields<BaseOptions>("base").add("device", &BaseOptions::device, NoResult{}, "Device.");
  }
};

struct EveryOptions : BaseOptions {
  bool flag = true;
  int64_t count = 5;
  uint64_t seed = 1;
  double threshold = 0.5;
  std::string name = "a\"b\\c\nd\x01 \xc3\xbc";
  std::filesystem::path file = "x/y.txt";
  std::vector<int64_t> sizes = {1, 2};
  std::vector<uint64_t> seeds = {7};
  std::vector<double> rates = {0.1, 1e-30, 3};
  std::vector<std::string> words = {"one", "two words"};
  std::vector<std::filesystem::path> paths = {"p"};
  std::optional<bool> maybe_flag;
  std::optional<int64_t> maybe_count;
  std::optional<double> maybe_rate;
  std::optional<std::string> maybe_word;
  InnerOptions inner;
  std::optional<InnerOptions> maybe_inner;
  std::vector<InnerOptions> list;
  bool operator==(const EveryOptions&) const = default;

  static Fields<EveryOptions> fields() {
    return Fields<EveryOptions>("every option")
        .inherit<BaseOptions>()
        .add("flag", &EveryOptions::flag, "A flag.")
        .add("count", &EveryOptions::count, Range{1, 64}, Unit{"tokens"}, "A count.")
        .add("seed", &EveryOptions::seed, "A seed.")
        .add("threshold", &EveryOptions::threshold, Range{0}, AllowInfinity{}, "inf: never.")
        .add("name", &EveryOptions::name, "A name.")
        .add("file", &EveryOptions::file, "A file.")
        .add("sizes", &EveryOptions::sizes, Range{1, 9}, "Sizes.")
        .add("seeds", &EveryOptions::seeds, "Seeds.")
        .add("rates", &EveryOptions::rates, "Rates.")
        .add("words", &EveryOptions::words, "Words.")
        .add("paths", &EveryOptions::paths, "Paths.")
        .add("maybe_flag", &EveryOptions::maybe_flag, "Perhaps a flag.")
        .add("maybe_count", &EveryOptions::maybe_count, Range{0, 3}, "Perhaps a count.")
        .add("maybe_rate", &EveryOptions::maybe_rate, "Perhaps a rate.")
        .add("maybe_word", &EveryOptions::maybe_word, "Perhaps a word.")
        .add("inner", &EveryOptions::inner, "A table.")
        .add("maybe_inner", &EveryOptions::maybe_inner, "Perhaps a table.")
        .add("list", &EveryOptions::list,
             "Tables, one for each of whatever there may be many of, explained at length.");
  }
};

struct RequiredOptions {
  std::string kind;
  static Fields<RequiredOptions> fields() {
    return Fields<RequiredOptions>("required").add("kind", &RequiredOptions::kind, Required{}, "What it is.");
  }
};

// Options whose check, across tables, names places below its own.
struct RivalOptions {
  std::vector<InnerOptions> list;
  static Fields<RivalOptions> fields() {
    return Fields<RivalOptions>("rivals")
        .add("list", &RivalOptions::list, "Tables.")
        .check([](const RivalOptions& options, const std::string& where, Problems& problems) {
          const std::string dot = where.empty() ? "" : where + ".";
          if (options.list.size() < 2) return;
          problems.add({.where = dot + "list[1].rate", .what = "a rate is given twice"});
          problems.add({.where = dot + "list[1].mode", .what = "a mode is missing"});
          problems.add({.where = dot + "list[7]", .what = "a table is missing"});
        });
  }
};

// Parses `text` and gives the messages of all problems, one string.
template <class T>
std::string problems_of(const std::string& text, T* result = nullptr) {
  Problems problems;
  const T options = parse_options<T>(parse_toml(text, "file.toml"), "", problems);
  if (result) *result = options;
  return text_of(problems.list());
}

EveryOptions unusual() {
  EveryOptions options;
  options.device = "cuda:1";
  options.flag = false;
  options.count = 64;
  options.seed = std::numeric_limits<int64_t>::max();
  options.threshold = std::numeric_limits<double>::infinity();
  options.sizes = {};
  options.seeds = {0, std::numeric_limits<int64_t>::max()};
  options.rates = {0.1 + 0.2, -1e300, std::nextafter(1.0, 2.0)};
  options.maybe_flag = false;
  options.maybe_count = 0;
  options.maybe_rate = 1.0;
  options.maybe_word = "";
  options.inner = {1.0, "linear"};
  options.maybe_inner = InnerOptions{0.25, "fancy"};
  options.list = {{0.5, "plain"}, {0.125, "linear"}};
  return options;
}

TEST(Options, EveryTypeIsParsed) {
  const char* text = R"(device = "cuda:1"
flag = false
count = 64
seed = 9223372036854775807
threshold = inf
sizes = []
seeds = [0, 9223372036854775807]
rates = [0.30000000000000004, -1e300, 1.0000000000000002]
maybe_flag = false
maybe_count = 0
maybe_rate = 1
maybe_word = ""
inner = { rate = 1, mode = "linear" }
maybe_inner = { rate = 0.25, mode = "fancy" }
list = [{ rate = 0.5 }, { rate = 0.125, mode = "linear" }]
)";
  EveryOptions parsed;
  EXPECT_EQ(problems_of<EveryOptions>(text, &parsed), "");
  EXPECT_EQ(parsed, unusual());
}

TEST(Options, AllProblemsAreReportedAtOnceWithTheirLines) {
  const std::string messages = problems_of<EveryOptions>(
      "cuont = 3\n"
      "count = 65\n"
      "flag = 1\n"
      "threshold = -0.5\n"
      "sizes = [1, 10]\n"
      "[inner]\n"
      "mode = \"fancyy\"\n"
      "zzz = 1\n"
      "[[list]]\n"
      "rate = 0.0\n");
  EXPECT_THAT(messages, HasSubstr("file.toml:1: cuont: unknown key 'cuont'\n  hint:     did you mean 'count'?"));
  EXPECT_THAT(messages, HasSubstr("file.toml:2: count: the value is not allowed\n  expected: an integer, 1 to 64\n"
                                  "  found:    65"));
  EXPECT_THAT(messages, HasSubstr("file.toml:3: flag: the value has the wrong type\n  expected: true or false"));
  EXPECT_THAT(messages,
              HasSubstr("file.toml:4: threshold: the value is not allowed\n  expected: a number, at least 0"));
  EXPECT_THAT(messages, HasSubstr("file.toml:5: sizes[1]: the value is not allowed"));
  EXPECT_THAT(messages, HasSubstr("file.toml:7: inner.mode: the value is not allowed\n"
                                  "  expected: 'plain', 'fancy' or 'linear'\n  found:    'fancyy'\n"
                                  "  hint:     did you mean 'fancy'?"));
  EXPECT_THAT(messages, HasSubstr("file.toml:8: inner.zzz: unknown key 'zzz'\n  hint:     known here: rate, mode"));
  EXPECT_THAT(
      messages,
      HasSubstr("file.toml:10: list[0].rate: the value is not allowed\n  expected: a number, above 0, at most 1"));
}

TEST(Options, NanIsRefusedAndInfinityWhereItMeansNothing) {
  EXPECT_THAT(problems_of<EveryOptions>("threshold = nan"), HasSubstr("not allowed"));
  EXPECT_EQ(problems_of<EveryOptions>("threshold = inf"), "");
  EXPECT_THAT(problems_of<EveryOptions>("maybe_rate = inf"), HasSubstr("not allowed"));
}

TEST(Options, CrossFieldChecksNameTheLineOfTheirOption) {
  const std::string text = "\n[[list]]\nrate = 0.5\n[[list]]\nrate = 0.5";
  const std::string messages = problems_of<RivalOptions>(text);
  EXPECT_THAT(messages, HasSubstr("file.toml:5: list[1].rate: a rate is given twice"));
  EXPECT_THAT(messages, HasSubstr("file.toml:4: list[1].mode: a mode is missing"));  // the table's line
  EXPECT_THAT(messages, HasSubstr("list[7]: a table is missing"));
  const toml::table stages = parse_toml("[stage]\n[[stage.list]]\nrate = 0.5\n[[stage.list]]\nrate = 0.5", "file.toml");
  Problems problems;
  parse_options<RivalOptions>(*stages["stage"].as_table(), "stage", problems);
  EXPECT_THAT(text_of(problems.list()), HasSubstr("file.toml:5: stage.list[1].rate"));
}

TEST(Options, CrossFieldChecksRunOnWhatParsed) {
  EXPECT_THAT(problems_of<EveryOptions>("[inner]\nmode = 'fancy'\nrate = 0.75"),
              HasSubstr("file.toml:1: inner: fancy needs a rate of at most 0.5"));
  // Not beside a problem of a single field, which it would only repeat.
  EXPECT_THAT(problems_of<EveryOptions>("[inner]\nmode = 'fancy'\nrate = 0.75\nx = 1"), Not(HasSubstr("fancy needs")));
}

TEST(Options, ValidationFindsWhatParsingWouldHave) {
  EveryOptions options;
  options.count = 0;
  options.sizes = {1, 100};
  options.maybe_count = 9;
  options.list = {{2.0, "nothing"}};
  options.maybe_rate = std::numeric_limits<double>::quiet_NaN();
  Problems problems;
  validate_options(options, "here", problems);
  std::vector<std::string> places;
  for (const Problem& problem : problems.list()) places.push_back(problem.where);
  EXPECT_THAT(places, testing::UnorderedElementsAre("here.count", "here.sizes[1]", "here.maybe_count",
                                                    "here.maybe_rate", "here.list[0].rate", "here.list[0].mode"));
}

TEST(Options, HashIgnoresWhatDoesNotChangeResultsAndNothingElse) {
  const EveryOptions plain;
  EveryOptions other_device;
  other_device.device = "cpu";
  EXPECT_EQ(options_hash(plain), options_hash(other_device));
  EXPECT_EQ(options_hash(plain).size(), 64u);
  EXPECT_NE(options_to_json(plain), options_to_json(other_device));

  std::set<std::string> hashes = {options_hash(plain)};
  for (const char* change : {"count = 6", "seed = 2", "threshold = 0.75", "maybe_flag = false", "maybe_inner = {}",
                             "list = [{}]", "list = [{}, {}]", "inner.rate = 0.2", "sizes = [1]", "threshold = inf"}) {
    EveryOptions changed;
    EXPECT_EQ(problems_of<EveryOptions>(change, &changed), "") << change;
    EXPECT_TRUE(hashes.insert(options_hash(changed)).second) << change;
  }
}

// A struct before and after a field was added.
struct YoungerInner {
  double rate = 0.1;
  int64_t added = 3;
  static Fields<YoungerInner> fields() {
    return Fields<YoungerInner>("inner").add("rate", &YoungerInner::rate, "").add("added", &YoungerInner::added, "");
  }
};

struct OlderInner {
  double rate = 0.1;
  static Fields<OlderInner> fields() { return Fields<OlderInner>("inner").add("rate", &OlderInner::rate, ""); }
};

template <class Inner>
struct Outer {
  int64_t count = 1;
  Inner inner;
  std::optional<Inner> maybe;
  std::vector<Inner> list;
  static Fields<Outer> fields() {
    return Fields<Outer>("outer")
        .add("count", &Outer::count, "")
        .add("inner", &Outer::inner, "")
        .add("maybe", &Outer::maybe, "")
        .add("list", &Outer::list, "");
  }
};

TEST(Options, HashOutlivesFieldsAddedWithADefault) {
  for (const char* given : {"", "count = 2", "inner.rate = 0.3", "maybe = {}", "maybe.rate = 2.0", "list = [{}, {}]",
                            "list = [{rate = 0.5}]"}) {
    Outer<OlderInner> older;
    Outer<YoungerInner> younger;
    EXPECT_EQ(problems_of<Outer<OlderInner>>(given, &older), "");
    EXPECT_EQ(problems_of<Outer<YoungerInner>>(given, &younger), "");
    EXPECT_EQ(options_hash(older), options_hash(younger)) << given;
  }
}

TEST(Options, DescriptionNamesEverythingWithinAHundredColumns) {
  const std::string text = describe_options<EveryOptions>();
  EXPECT_THAT(text, testing::AllOf(HasSubstr("count: integer (tokens), 1 to 64; default: 5\n      A count."),
                                   HasSubstr("inner.mode: string, 'plain', 'fancy' or 'linear'; default: \"plain\""),
                                   HasSubstr("list[].rate: number, above 0, at most 1; default: 0.1"),
                                   HasSubstr("maybe_inner: table [maybe_inner]; default: none")));
  EXPECT_THAT(describe_options<RequiredOptions>(), HasSubstr("kind: string; required"));
  EXPECT_LE(widest_line(text), 100u) << text;
}

// The field of EveryOptions by name.
Field field_named(const std::string& name) {
  const FieldList list = EveryOptions::fields();
  for (const Field& field : list.all()) {
    if (field.name == name) return field;
  }
  throw std::logic_error("no field " + name);
}

TEST(Options, FlagsReadValuesAsTomlAndStringsAsTheyAre) {
  EveryOptions options;
  Problems problems;
  parse_field_text(field_named("count"), {"7"}, "--count", &options, problems);
  parse_field_text(field_named("name"), {"5"}, "--name", &options, problems);
  parse_field_text(field_named("rates"), {"1", "2.5"}, "--rates", &options, problems);
  parse_field_text(field_named("words"), {"a b", "[c]"}, "--words", &options, problems);
  parse_field_text(field_named("maybe_flag"), {"true"}, "--maybe-flag", &options, problems);
  problems.throw_if_any();
  EXPECT_EQ(options.count, 7);
  EXPECT_EQ(options.name, "5");
  EXPECT_EQ(options.rates, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(options.words, (std::vector<std::string>{"a b", "[c]"}));
  EXPECT_EQ(options.maybe_flag, true);

  parse_field_text(field_named("count"), {"many"}, "--count", &options, problems);
  parse_field_text(field_named("count"), {"[1"}, "--count", &options, problems);
  ASSERT_EQ(problems.list().size(), 2u);
  EXPECT_EQ(problems.list()[0].where, "--count");
}

struct NestedFileOptions {
  std::optional<std::filesystem::path> absent;
  std::vector<EveryOptions> list;
  static Fields<NestedFileOptions> fields() {
    return Fields<NestedFileOptions>("nested files")
        .add("absent", &NestedFileOptions::absent, "A file.")
        .add("list", &NestedFileOptions::list, "Structs with files.");
  }
};

TEST(Options, PathsAreFoundWhereverTheyStand) {
  NestedFileOptions options;
  options.list.resize(2);
  options.list[1].paths.clear();
  EXPECT_THAT(option_paths(options), ElementsAre("x/y.txt", "p", "x/y.txt"));
}

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
  Menu menu = parsed("degrees = [100, 200]\nshelf = \"low\"\nfan = true\n", problems);
  EXPECT_EQ(problems.list().size(), 0U);
  EXPECT_THAT(menu.lists[&Oven::degrees], ElementsAre(100, 200));
  EXPECT_THAT(menu.lists[&Oven::shelf], ElementsAre("low"));
  EXPECT_TRUE(menu.base.fan);
}

TEST(OptionsGrid, ElementsAreCheckedAndOtherKeysUnknown) {
  Problems problems;
  parsed("degrees = [100, 500]\nshelf = [\"lov\"]\nfan = true\nowner = \"you\"\n", problems);
  EXPECT_THAT(text_of(problems.list()),
              AllOf(HasSubstr("degrees[1]"), HasSubstr("did you mean 'low'?"), HasSubstr("unknown key 'owner'")));
}

TEST(OptionsGrid, JsonAndIdentityShowLists) {
  Problems problems;
  const Menu menu = parsed("degrees = [100]\nfan = false\nname = \"bread\"\n", problems);
  EXPECT_EQ(options_to_json(menu).dump(), R"({"degrees":[100],"hours":[],"shelf":[],"fan":false,"name":"bread"})");
  EXPECT_EQ(options_identity(menu).dump(), R"({"degrees":[100],"fan":false,"name":"bread"})");
}

}  // namespace
}  // namespace draftsmith
