#include "tests/cli/program.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/application.h"
#include "tests/support/paths.h"

namespace draftsmith::test {
namespace {

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input) {
  const TemporaryDirectory directory;
  write_file_atomic(directory / "in", input);
  std::string command = shell_quoted(draftsmith::test::draftsmith_binary());
  for (const std::string& argument : arguments) command.append(" ").append(shell_quoted(argument));
  const auto file = [&](const char* name) { return shell_quoted((directory / name).string()); };
  command += fmt::format(" <{} >{} 2>{}", file("in"), file("out"), file("err"));
  const int status = std::system(command.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = read_file(directory / "out"),
          .err = read_file(directory / "err")};
}

ProgramResult run_here(const std::vector<std::string>& arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  return {.exit_code = cli::guarded([&] { return cli::run(arguments); }),
          .out = testing::internal::GetCapturedStdout(),
          .err = testing::internal::GetCapturedStderr()};
}

std::string refusal_of(const ProgramResult& result, bool silent) {
  EXPECT_EQ(result.exit_code, 2) << result.err;
  if (silent) {
    EXPECT_EQ(result.out, "");
  }
  return result.err;
}

ProcessBeside::ProcessBeside(std::vector<std::string> line) : folder_(std::make_unique<TemporaryDirectory>()) {
  std::vector<char*> arguments;
  for (std::string& text : line) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  const std::string out = *folder_ / "out", err = *folder_ / "err";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0644);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0644);
  const int failed = posix_spawn(&process_, line.front().c_str(), &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw std::runtime_error("cannot start " + line.front());
}

ProcessBeside::~ProcessBeside() {
  if (!runs()) return;
  send(SIGKILL);
  wait();
}

bool ProcessBeside::runs() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
  return !ended_;
}

std::vector<pid_t> ProcessBeside::children() const {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", process_));
  std::vector<pid_t> all;
  for (pid_t child = 0; list >> child;) all.push_back(child);
  return all;
}

ProgramResult ProcessBeside::wait() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, 0) == process_;
  return {.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_),
          .out = read_file(*folder_ / "out"),
          .err = read_file(*folder_ / "err")};
}

}  // namespace draftsmith::test
