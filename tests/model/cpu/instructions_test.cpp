// Which instructions the kernels use, and how a user lowers them.
#include "model/cpu/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

using testing::HasSubstr;

TEST(CpuInstructions, AreTheLargestUnlessTheUserLowersThem) {
  EXPECT_EQ(choose_instructions({}, Instructions::kAvx512), Instructions::kAvx512);
  EXPECT_EQ(choose_instructions("", Instructions::kAvx2), Instructions::kAvx2);
  EXPECT_EQ(choose_instructions("avx2", Instructions::kAvx512), Instructions::kAvx2);
  using enum Instructions;
  for (const Instructions set : {kPortable, kAvx2, kAvx512, kAmx}) {
    EXPECT_EQ(choose_instructions(to_string(set), Instructions::kAmx), set);
    EXPECT_EQ(choose_instructions("portable", set), Instructions::kPortable);
  }
}

TEST(CpuInstructions, OfOtherNamesAreAnError) {
  for (const char* wrong : {"sse", "AVX2", "avx512 ", "on"}) {
    const std::string error = error_of([&] { choose_instructions(wrong, Instructions::kAvx512); });
    EXPECT_THAT(error, HasSubstr("DRAFTSMITH_CPU"));
    EXPECT_THAT(error, HasSubstr("amx, avx512, avx2 or portable"));
    EXPECT_THAT(error, HasSubstr(wrong));
  }
}

TEST(CpuInstructions, ThatTheProcessorLacksAreAnError) {
  EXPECT_THAT(error_of([] { choose_instructions("avx512", Instructions::kAvx2); }), HasSubstr("at most avx2"));
  EXPECT_THAT(error_of([] { choose_instructions("avx2", Instructions::kPortable); }), HasSubstr("at most portable"));
}

TEST(CpuInstructions, OfThisMachineBeginWithPortable) {
  EXPECT_EQ(available_instructions().front(), Instructions::kPortable);
  EXPECT_LE(cpu_instructions(), available_instructions().back());
}

}  // namespace
}  // namespace draftsmith::model
