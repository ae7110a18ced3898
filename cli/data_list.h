// `draftsmith data list`: prints the data sets that can be used by name.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace draftsmith::cli {

// Declares the command, and returns its action.
std::function<int()> add_data_list(CLI::App& app);

}  // namespace draftsmith::cli
