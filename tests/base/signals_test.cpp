#include "base/signals.h"

#include <csignal>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftsmith {
namespace {

TEST(Signals, AreRequestsWhileWatched) {
  const SignalWatch watch;
  EXPECT_EQ(stop_requested(), 0);
  throw_if_stop_requested("nothing");
  std::raise(SIGTERM);
  EXPECT_EQ(stop_requested(), SIGTERM);
  try {
    throw_if_stop_requested("step 5 is saved");
    FAIL();
  } catch (const Interrupted& stop) {
    EXPECT_EQ(stop.exit_code(), 143);
    EXPECT_THAT(stop.what(), testing::HasSubstr("step 5 is saved"));
  }
}

TEST(Signals, ASecondOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(Signals, CallersKeepTheirHandlersAndAskByThemselves) {
  struct sigaction before {
  }, during{};
  sigaction(SIGINT, nullptr, &before);
  {
    const SignalWatch watch(SignalWatch::Handlers::kCallers);
    sigaction(SIGINT, nullptr, &during);
    EXPECT_EQ(during.sa_handler, before.sa_handler);
    request_stop(SIGINT);
    EXPECT_EQ(stop_requested(), SIGINT);
  }
  EXPECT_EQ(stop_requested(), 0);
}

}  // namespace
}  // namespace draftsmith
