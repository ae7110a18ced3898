// Messages of a command whose work fails.
#include "cli/guard.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith::cli {
namespace {

TEST(Guard, AFullGpuSaysWhatWasAskedAndWhatToLower) {
  testing::internal::CaptureStderr();
  const int code = guarded([]() -> int {
    throw c10::OutOfMemoryError({"file.cpp", "allocate", 1},
                                "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 7.00 GiB free. Of the "
                                "allocated memory 1 GiB is reserved. If reserved but unallocated memory is large try");
  });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, testing::HasSubstr("error: the GPU's memory is full\n  found:    CUDA out of memory. Tried to "
                                       "allocate 20.00 GiB. GPU 0 has 7.00 GiB free.\n"));
  EXPECT_THAT(text, testing::HasSubstr("--batch-size"));
}

}  // namespace
}  // namespace draftsmith::cli
