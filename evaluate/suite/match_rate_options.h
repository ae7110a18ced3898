// What a suite asks of match rates (infer/forced/match_rates.h): a [[match_rates]] table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"
#include "infer/forced/match_rates.h"

namespace draftsmith::evaluate {

struct MatchRateTable {
  std::string name;
  std::string task;
  std::string model = "target";
  std::filesystem::path exits;
  std::vector<int64_t> layers;
  std::vector<int64_t> candidates{1, 3, 5};

}  // namespace draftsmith::evaluate
