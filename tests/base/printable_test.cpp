#include <gtest/gtest.h>

#include "base/utf8.h"

namespace draftsmith {
namespace {

TEST(Printable, EscapesWhatATerminalWouldActOnAndCutsLongText) {
  EXPECT_EQ(printable("plain ~text"), "plain ~text");
  EXPECT_EQ(printable("a\x1b[31m\n\x7f\xc3"), "a\\x1b[31m\\x0a\\x7f\\xc3");
  EXPECT_EQ(printable(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(printable(std::string(121, 'x')), std::string(120, 'x') + "...");
}

}  // namespace
}  // namespace draftsmith
