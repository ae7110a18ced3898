// Commands of users: both ways at once, and every way in which a command can end. Requests to stop, long work that they
// end, and copies of the process.
#include "base/child_process.h"

#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"
#include "base/timing.h"
#include "tests/support/errors.h"

namespace draftsmith {
namespace {

TEST(ShellCommand, IsRefusedWhereItsEndCannotBeSeen) {
  std::signal(SIGCHLD, SIG_IGN);
  EXPECT_THAT(error_of<RunError>([] { run_shell("exit 3", "", {.seconds = 2}); }), testing::HasSubstr("SIGCHLD"));
  EXPECT_THAT(error_of<RunError>([] { run_in_copy([] { return std::string(); }); }), testing::HasSubstr("SIGCHLD"));
  std::signal(SIGCHLD, SIG_DFL);
}

TEST(ShellCommand, MoreInputThanAPipeHoldsComesBack) {
  const std::string input(3'000'000, 'x');
  const ShellResult result = run_shell("cat", input);
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output, input);
}

TEST(ShellCommand, InputMayStayUnread) {
  const ShellResult result = run_shell("echo done", std::string(500'000, 'x'));
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output, "done\n");
}

TEST(ShellCommand, ACommandThatHangsIsKilledWithItsChildren) {
  const ShellResult result = run_shell("sleep 60 | cat", "", {.seconds = 0.05});
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.succeeded());
}

TEST(ShellCommand, WhatItLeavesInTheBackgroundIsEnded) {
  const ShellResult result = run_shell("sleep 60 & echo $!", "");
  EXPECT_TRUE(result.succeeded());
  const pid_t left = std::stoi(result.output);
  // The end of a killed process may take a moment.
  const std::string dead = fmt::format(
      "for i in $(seq 1000); do test ! -d /proc/{0} || grep -q 'State:.*Z' /proc/{0}/status && exit 0; done; exit 1",
      left);
  EXPECT_TRUE(run_shell(dead, "").succeeded());
}

TEST(ShellCommand, AStopRequestEndsIt) {
  const SignalWatch watch;
  request_stop(SIGINT);
  EXPECT_THROW(run_shell("sleep 60", ""), Interrupted);
}

TEST(ShellCommand, WordsReachTheCommandAsTheyAre) {
  EXPECT_EQ(shell_word("work/target-1/model"), "work/target-1/model");
  for (const std::string text : {"", "a b", "it's", "$HOME", "`ls`", "~", "a\nb", "#", "*", "\\", "\xC3\xA4"}) {
    EXPECT_EQ(run_shell("printf %s " + shell_word(text), "").output, text);
  }
}

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

TEST(LongWork, EndsAtItsPointsAndLetsAProgressPrint) {
  const SignalWatch watch;
  int64_t outer_ticks = 0, ticks = 0;
  work_point();  // outside of long work
  const LongWork outer("the outer work", [&] { ++outer_ticks; });
  {
    const LongWork step({}, [&] { ++ticks; });
    request_stop(SIGTERM);
    work_point();
    work_point();
  }
  EXPECT_EQ(ticks, 2) << "without anything saved a stop waits";
  try {
    work_point();
    FAIL();
  } catch (const Interrupted& stop) {
    EXPECT_EQ(stop.exit_code(), 143);
    EXPECT_THAT(stop.what(), testing::HasSubstr("the outer work"));
  }
  EXPECT_EQ(outer_ticks, 0);
}

TEST(LongWork, IsThatOfItsThread) {
  const SignalWatch watch;
  const LongWork work("saved");
  request_stop(SIGINT);
  std::thread([] { work_point(); }).join();
  EXPECT_THROW(work_point(), Interrupted);
}

TEST(CopiedProcess, ReturnsWhatItWorkedOut) {
  const std::string large(3'000'000, 'x');
  int calls = 0;
  EXPECT_EQ(run_in_copy([&] {
              ++calls;
              return large + std::to_string(calls);
            }),
            large + "1");
  EXPECT_EQ(calls, 0) << "memory is not shared";
  EXPECT_EQ(run_in_copy([] { return std::string(); }), "");
}

TEST(CopiedProcess, EndsWithTheWork) {
  const SignalWatch watch;
  int ticks = 0;
  const LongWork work("nothing", [&] {
    if (++ticks == 2) request_stop(SIGTERM);
  });
  const Stopwatch stopwatch;
  EXPECT_THROW(run_in_copy([] {
                 sleep(60);
                 return std::string();
               }),
               Interrupted);
  EXPECT_LT(stopwatch.seconds(), 10);
}

TEST(CopiedProcess, ThatIsKilledIsAnError) {
  EXPECT_THROW(run_in_copy([]() -> std::string {
                 std::raise(SIGKILL);
                 return "late";
               }),
               RunError);
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
