// Finds the subcommand, parses its flags and runs it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace draftsmith::cli {

// Runs the command line `arguments` (without the program's name); gives the exit code. Throws UserError for a command
// line that cannot be parsed, and what the subcommand throws.
int run(const std::vector<std::string>& arguments);

// Builds the parser with every subcommand, and for each what it runs.
std::vector<std::pair<CLI::App*, std::function<int()>>> add_commands(CLI::App& app);

}  // namespace draftsmith::cli
