#include "cli/commands.h"

namespace draftsmith::cli {

// One declaration and one line below for each subcommand.
std::function<int()> add_help(CLI::App& app);

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"help", "Explain a command, or every option of the configuration files", add_help},
  };
  return list;
}

}  // namespace draftsmith::cli
