#include "cli/application.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "cli/commands.h"

namespace draftsmith::cli {

namespace {

constexpr const char* kDescription =
    "Draftsmith trains drafters for a large sequence model and measures how much each one speeds up decoding\n"
    "and what it costs in quality.";

constexpr const char* kExamples =
    "Examples:\n"
    "  draftsmith train recipes/quickstart.toml --work work/quickstart\n"
    "  draftsmith generate --model work/quickstart/target/model --input source.txt\n"
    "  draftsmith help options\n"
    "\n"
    "`draftsmith COMMAND --help` explains one command.";

std::string version_text() {
  return fmt::format("draftsmith {} ({}, {}, LibTorch {})", version(), git_commit(), compiler(), libtorch_version());
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return names;
}

void check_command_name(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with("-")) return;
  const std::vector<std::string> names = command_names();
  const std::string& name = arguments.front();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string near = nearest(name, names);
  throw UserError({"", "unknown command '" + name + "'", fmt::format("one of {}", fmt::join(names, ", ")), "",
                   near.empty() ? "draftsmith --help lists the commands" : "did you mean '" + near + "'?"});
}

// The innermost command that was chosen, for its help and its flags' names.
const CLI::App& chosen(const CLI::App& app) {
  const auto inner = app.get_subcommands();
  return inner.empty() ? app : chosen(*inner.front());
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "draftsmith data prepare".
std::string full_name(const CLI::App& app) {
  return app.get_parent() ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

UserError command_line_error(const CLI::App& app, const CLI::ParseError& error,
                             const std::vector<std::string>& arguments) {
  const CLI::App& command = chosen(app);
  const std::vector<std::string> known = flag_names(command);
  Problems problems;
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (const std::string& argument : arguments) {
      const std::string flag = argument.substr(0, argument.find('='));
      if (!flag.starts_with("--") || std::find(known.begin(), known.end(), flag) != known.end()) continue;
      const std::string near = nearest(flag, known);
      problems.add({full_name(command), "unknown flag '" + flag + "'", "", "",
                    near.empty() ? full_name(command) + " --help lists the flags" : "did you mean '" + near + "'?"});
    }
  }
  if (problems.empty()) {
    problems.add({full_name(command), error.what(), "", "", full_name(command) + " --help explains the flags"});
  }
  return UserError(problems.list());
}

}  // namespace

std::vector<std::pair<CLI::App*, std::function<int()>>> add_commands(CLI::App& app) {
  std::vector<std::pair<CLI::App*, std::function<int()>>> runners;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    std::function<int()> runner = command.add(*sub);
    runners.emplace_back(sub, std::move(runner));
  }
  return runners;
}

int run(const std::vector<std::string>& arguments) {
  check_command_name(arguments);
  CLI::App app(kDescription, "draftsmith");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.get_formatter()->column_width(34);
  const auto runners = add_commands(app);

  if (arguments.empty()) {
    std::cout << app.help();
    return 0;
  }
  try {
    // CLI11 takes its arguments from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    throw command_line_error(app, error, arguments);
  }
  for (const auto& [command, runner] : runners) {
    if (command->parsed()) return runner();
  }
  throw std::logic_error("no subcommand was chosen");
}

}  // namespace draftsmith::cli
