#include "tests/cli/program.h"

#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

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
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.out = read_file(directory / "out");
  result.err = read_file(directory / "err");
  return result;
}

ProgramResult run_here(const std::vector<std::string>& arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ProgramResult result;
  result.exit_code = cli::guarded([&] { return cli::run(arguments); });
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

}  // namespace draftsmith::test
