#include "base/json.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

std::string json_syntax_error(const std::string& text) {
  return error_of([&] { parse_json(text, "config.json"); });
}

TEST(Json, SyntaxErrorsNameFileAndLine) {
  EXPECT_THAT(json_syntax_error("{\n\"a\": 1,\n\"b\": }\n"), HasSubstr("config.json:3: not valid JSON"));
  EXPECT_THAT(json_syntax_error(""), HasSubstr("config.json:1: not valid JSON"));
  EXPECT_THAT(json_syntax_error("{\"a\": 1} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(json_syntax_error("\"\xff\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(json_syntax_error("[1e999]"), HasSubstr("config.json"));
  EXPECT_EQ(json_syntax_error("{\"a\": [1, 2.5, null, true, \"x\"]}"), "no error");
}

TEST(Json, NestingIsLimited) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(json_syntax_error(nested(64)), "no error");
  EXPECT_THAT(json_syntax_error(nested(65)), HasSubstr("nested too deeply"));
  EXPECT_THAT(json_syntax_error(nested(1'000'000)), HasSubstr("nested too deeply"));
}

TEST(Json, KeysGivenTwiceAreRefused) {
  EXPECT_THAT(json_syntax_error("{\"a\": {\"b\": 1, \"b\": 2}}"), HasSubstr("\"b\" is given twice"));
  EXPECT_EQ(json_syntax_error("{\"a\": {\"b\": 1}, \"b\": [{\"b\": 1}, {\"b\": 2}]}"), "no error");
}

TEST(Json, FilesAreWrittenAndReadBack) {
  const TemporaryDirectory directory;
  const nlohmann::ordered_json value = {{"z", 1}, {"a", {0.1, nullptr, "x"}}};
  write_json(directory / "f.json", value);
  EXPECT_EQ(load_json(directory / "f.json"), nlohmann::json(value));
  EXPECT_THAT(read_file(directory / "f.json"), testing::StartsWith("{\n  \"z\": 1,"));
  EXPECT_THROW(load_json(directory / "f.json", 5), UserError);
}

TEST(JsonReader, ReadsWhatIsThereAndFallsBackWhereAllowed) {
  const auto json =
      parse_json(R"({"i": -3, "d": 2.5, "n": 7, "b": true, "s": "x", "null": null, "l": [1, 2], "u": 4})", "");
  Problems problems;
  JsonReader reader(json, "c.json", problems);
  EXPECT_EQ(reader.get_int("i"), -3);
  EXPECT_EQ(reader.get_int("missing", {}, 9), 9);
  EXPECT_EQ(reader.get_int("null", {}, 9), 9);
  EXPECT_EQ(reader.get_double("d"), 2.5);
  EXPECT_EQ(reader.get_double("n"), 7.0);
  EXPECT_EQ(reader.get_double("missing", 0.5), 0.5);
  EXPECT_TRUE(reader.get_bool("b"));
  EXPECT_TRUE(reader.get_bool("missing", true));
  EXPECT_EQ(reader.get_string("s"), "x");
  EXPECT_EQ(reader.get_string("missing", "y"), "y");
  EXPECT_THAT(reader.get_ints("l"), ElementsAre(1, 2));
  EXPECT_THAT(reader.get_ints("u"), ElementsAre(4));
  EXPECT_THAT(reader.get_ints("missing"), ElementsAre());
  EXPECT_TRUE(problems.empty());
}

TEST(JsonReader, CollectsEveryProblem) {
  const auto json =
      parse_json(R"({"i": 2.5, "big": 18446744073709551615, "low": 0, "d": "x", "b": 1, "s": 3, "l": [1, "x"]})", "");
  Problems problems;
  JsonReader reader(json, "c.json", problems);
  reader.get_int("i");
  reader.get_int("big", {});
  reader.get_int("low", {1, 10});
  reader.get_double("d", 1.0);
  reader.get_bool("b");
  reader.get_string("s");
  reader.get_ints("l");
  reader.get_int("missing");
  reader.get_string("missing");
  ASSERT_EQ(problems.list().size(), 9u);
  EXPECT_EQ(to_string(problems.list()[2]),
            "c.json: 'low' has an unusable value\n  expected: an integer in 1 to 10\n  found:    0");
  EXPECT_EQ(to_string(problems.list()[7]), "c.json: the key 'missing' is missing");
}

TEST(ExactText, KeepsTheBitsOfEveryNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {0.1, 1.0 / 3, -1e-300, 1e300, 5e-324, kInfinity, -kInfinity}) {
    EXPECT_EQ(exact_number(nlohmann::json(exact_text(number))), number);
  }
  EXPECT_TRUE(std::isnan(exact_number(nlohmann::json(exact_text(std::nan(""))))));
}

}  // namespace
}  // namespace draftsmith
