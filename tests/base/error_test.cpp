// Messages of errors, and lists of names.
#include "base/error.h"

#include <gmock/gmock.h>

#include "base/registry.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

TEST(Error, MessagesShowWhatWasGivenOnly) {
  EXPECT_EQ(to_string({.where = "a.toml:3", .what = "too large", .expected = "1", .found = "2", .hint = "less"}),
            "a.toml:3: too large\n  expected: 1\n  found:    2\n  hint:     less");
  EXPECT_EQ(to_string({.what = "bad"}), "bad");
}

TEST(Problems, AreThrownTogether) {
  Problems problems;
  problems.throw_if_any();
  problems.add({.what = "first"});
  problems.add({.what = "second"});
  problems.add_all({{.where = "b", .what = "third"}}, "a.");
  EXPECT_EQ(error_of([&] { problems.throw_if_any(); }), "first\nsecond\na.b: third");
}

TEST(Nearest, FindsMisspellingsAndNothingFarAway) {
  const std::vector<std::string> known = {"window", "temperature", "top_k"};
  EXPECT_EQ(nearest("widnow", known), "window");
  EXPECT_EQ(nearest("temprature", known), "temperature");
  EXPECT_EQ(nearest("topk", known), "top_k");
  EXPECT_EQ(nearest("beams", known), "");
  EXPECT_EQ(nearest("x", {}), "");
}

enum class Colour { kRed, kGreen };

TEST(NamedValues, GiveTheValueOfANameAndTheNameOfAValue) {
  const NamedValues<Colour> colours("colour", {{"red", Colour::kRed}, {"green", Colour::kGreen}});
  EXPECT_THAT(colours.names(), ElementsAre("red", "green"));
  EXPECT_EQ(colours.at("green"), Colour::kGreen);
  EXPECT_EQ(colours.name(Colour::kRed), "red");
  EXPECT_THAT(error_of([&] { colours.at("grene"); }),
              AllOf(HasSubstr("there is no colour of this name"), HasSubstr("did you mean green?")));
  EXPECT_THROW(colours.name(static_cast<Colour>(2)), std::logic_error);
}

}  // namespace
}  // namespace draftsmith
