#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/support/errors.h"

namespace draftsmith::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TokenIds, AreSeparatedByBlanks) {
  EXPECT_THAT(parse_token_ids("  3 0\t9 ", 10, "ids.txt:1", ""), ElementsAre(3, 0, 9));
  EXPECT_THAT(parse_token_ids("", 10, "ids.txt:2", ""), IsEmpty());
}

TEST(TokenIds, OthersAreErrorsThatNameThePlace) {
  for (const char* word : {"10", "-1", "x", "1x", "99999999999999999999", "1.5", "+1"}) {
    EXPECT_THAT(error_of([&] { parse_token_ids(std::string("1 ") + word, 10, "ids.txt:7", "give ids"); }),
                testing::AllOf(HasSubstr("ids.txt:7"), HasSubstr("0..9"), HasSubstr(word)));
  }
}

}  // namespace
}  // namespace draftsmith::data
