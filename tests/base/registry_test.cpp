#include "base/registry.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace draftsmith
