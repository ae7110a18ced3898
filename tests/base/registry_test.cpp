#include "base/registry.h"

#include <gmock/gmock.h>

#include "tests/support/errors.h"

namespace draftsmith {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Shape {
  std::string name;
  int corners;
};

const Registry<Shape> kShapes("shape", {{"square", 4}, {"triangle", 3}});

TEST(Registry, FindsEntriesByNameInTheOrderOfTheList) {
  EXPECT_EQ(kShapes.at("triangle").corners, 3);
  EXPECT_EQ(kShapes.find("square")->corners, 4);
  EXPECT_EQ(kShapes.find("circle"), nullptr);
  EXPECT_THAT(kShapes.names(), ElementsAre("square", "triangle"));
}

TEST(Registry, AnUnknownNameIsAnErrorThatNamesTheKnownOnesAndTheNearest) {
  try {
    kShapes.at("sqare");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("there is no shape of this name"), HasSubstr("square, triangle"),
                                    HasSubstr("did you mean square?")));
  }
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
