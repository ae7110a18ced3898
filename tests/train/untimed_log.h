// The log of a training run without its times, which differ from run to run.
#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/files.h"

namespace draftsmith::train {

// Returns the lines of the run's metrics.jsonl without what was timed.
inline std::vector<nlohmann::json> untimed_log(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : lines_of(read_file(run / "metrics.jsonl"))) {
    lines.push_back(nlohmann::json::parse(line));
    for (const char* timed : {"seconds", "tokens_per_second", "validation_seconds"}) lines.back().erase(timed);
  }
  return lines;
}

}  // namespace draftsmith::train
