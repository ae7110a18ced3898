#include "cli/application.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/utf8.h"
#include "cli/commands.h"

namespace draftsmith::cli {

namespace {

constexpr const char* kDescription =
    "Draftsmith trains small drafters for large sequence models and measures how much each one speeds up\n"
    "decoding and what it costs in quality.";

constexpr const char* kExamples =
    "Examples:\n"
    "Train a target and drafters and measure them, in minutes on a CPU:\n"
    "  draftsmith train recipes/quickstart.toml --work work/quickstart\n"
    "Describe the result, and decode with the model and with a drafter:\n"
    "  draftsmith inspect work/quickstart\n"
    "  draftsmith generate --model work/quickstart/target/model --input source.txt\n"
    "  draftsmith generate --model work/quickstart/target/model --input source.txt \\\n"
    "    --drafter work/quickstart/aligned/model --method speculative\n"
    "Explain one command, or every option of recipes and suites:\n"
    "  draftsmith help generate\n"
    "  draftsmith help options";

std::string version_text() {
  return fmt::format("draftsmith {} ({}, {}, LibTorch {})", version(), git_commit(), compiler(), libtorch_version());
}

// Returns the innermost chosen command.
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

// Returns the command with its parents, for example "draftsmith data prepare".
std::string full_name(const CLI::App& app) {
  return app.get_parent() ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

// Throws UserError for a misspelt command at any level, before CLI11 reports another error.
void check_command_names(const CLI::App& root, const std::vector<std::string>& arguments) {
  const CLI::App* command = &root;
  for (const std::string& argument : arguments) {
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
      if (sub->get_name() == argument) found = sub;
    }
    if (names.empty() || argument.starts_with("-")) return;
    if (!found) {
      const std::string near = nearest(argument, names);
      throw UserError(
          {.where = command == &root ? "" : full_name(*command),
           .what = "unknown command '" + argument + "'",
           .expected = fmt::format("one of {}", fmt::join(names, ", ")),
           .hint = near.empty() ? full_name(*command) + " --help lists the commands" : "did you mean '" + near + "'?"});
    }
    command = found;
  }
}

// Formatter whose help lines fit a hundred columns.
class WrappingFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text;
    size_t column = 0;
    std::istringstream words(CLI::Formatter::make_option_desc(option));
    for (std::string word; words >> word; column += display_width(word) + 1) {
      if (column > 0 && kNameColumns + column + display_width(word) > kColumns) {
        text += '\n';
        column = 0;
      }
      text += (column > 0 ? " " : "") + word;
    }
    return text;
  }

  static constexpr size_t kNameColumns = 34;
  static constexpr size_t kColumns = 100;
};

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
  CLI::App app(kDescription, "draftsmith");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  // Subcommands take over the formatter that is set when they are added.
  app.formatter(std::make_shared<WrappingFormatter>());
  app.get_formatter()->column_width(WrappingFormatter::kNameColumns);
  const auto runners = add_commands(app);
  check_command_names(app, arguments);

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
