// `draftsmith help`: explains a command, or every option of the configuration files.
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/registry.h"
#include "cli/application.h"
#include "cli/commands.h"
#include "cli/option_registry.h"

namespace draftsmith::cli {

namespace {

int print_options(const std::string& wanted) {
  std::vector<std::string> names;
  bool printed = false;
  for (const OptionSection& section : option_sections()) {
    names.push_back(section.name);
    if (!wanted.empty() && section.name != wanted) continue;
    std::cout << (printed ? "\n" : "") << section.describe();
    printed = true;
  }
  if (printed) return 0;
  throw UserError(unknown_name("section of options", wanted, names));
}

}  // namespace

std::function<int()> add_help(CLI::App& app) {
  auto topic = std::make_shared<std::vector<std::string>>();
  app.add_option("topic", *topic, "'options', 'options NAME', or a command");
  app.footer(
      "Examples:\n"
      "  draftsmith help generate        explains one command\n"
      "  draftsmith help options         explains every option of recipes and suites\n"
      "  draftsmith help options train   explains the options of one kind of stage");
  return [topic] {
    if (topic->empty()) return run({"--help"});
    if (topic->front() == "options") return print_options(topic->size() > 1 ? (*topic)[1] : "");
    std::vector<std::string> arguments = *topic;
    arguments.push_back("--help");
    return run(arguments);
  };
}

}  // namespace draftsmith::cli
