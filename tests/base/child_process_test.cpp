// Commands of users: both ways at once, and every way in which a command can end.
#include "base/child_process.h"

#include <csignal>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/signals.h"

namespace draftsmith {
namespace {

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

}  // namespace
}  // namespace draftsmith
