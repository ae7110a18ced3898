// Runs tools/reference_metrics.py in the peers' virtual environment, for comparisons with the Python originals.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace draftsmith::metrics {

// Folder with the script's output for `command`, or nothing and `why` when the peers or the data are absent. A script
// that fails is an exception.
std::optional<std::filesystem::path> run_reference(const std::string& command, std::string& why);

}  // namespace draftsmith::metrics
