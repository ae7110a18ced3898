// Help of every command: it fits a hundred columns and teaches with examples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/application.h"
#include "tests/support/files.h"

namespace draftsmith::cli {
namespace {

std::string help_of(std::vector<std::string> command) {
  command.emplace_back("--help");
  testing::internal::CaptureStdout();
  run(command);
  return testing::internal::GetCapturedStdout();
}

// Checks the help of `app`, whose name on the command line is `name`, and of its subcommands.
void check_help(const CLI::App& app, const std::vector<std::string>& name) {
  const std::string help = help_of(name);
  EXPECT_LE(widest_line(help), 100u) << help;
  EXPECT_THAT(help, testing::ContainsRegex("Examples?[ (:]"));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> longer = name;
    longer.push_back(sub->get_name());
    check_help(*sub, longer);
  }
}

TEST(Help, OfEveryCommandFitsAHundredColumnsAndTeachesWithExamples) {
  CLI::App app("", "draftsmith");
  const auto commands = add_commands(app);
  check_help(app, {});
}

}  // namespace
}  // namespace draftsmith::cli
