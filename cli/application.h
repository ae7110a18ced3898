// The command line of `draftsmith`: finds the subcommand, parses its flags and runs it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace draftsmith::cli {

// Runs the command line `arguments`, which omits the program's name, and returns the exit code. Throws UserError for a
// command line that cannot be parsed. Errors of the subcommand pass through.
int run(const std::vector<std::string>& arguments);

// Adds every subcommand to the parser. Returns each with the function that runs it.
std::vector<std::pair<CLI::App*, std::function<int()>>> add_commands(CLI::App& app);

}  // namespace draftsmith::cli
