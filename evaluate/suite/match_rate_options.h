// Options of match rates (infer/forced/match_rates.h) in a suite: a [[match_rates]] table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"
#include "evaluate/suite/names.h"
#include "infer/forced/match_rates.h"

namespace draftsmith::evaluate {

struct MatchRateTable {
  std::string name;
  std::string task;
  std::string model = kTargetName;
  std::filesystem::path exits;
  std::vector<int64_t> layers;
  std::vector<int64_t> candidates{1, 3, 5};
  std::vector<std::string> decoding{"greedy", "top-k", "top-p"};
  int64_t positions = 2;
  int64_t bins = 8;
  int64_t prompts = 200;
  static Fields<MatchRateTable> fields();

  // Returns the options of the count, without the seed and lengths that the suite sets.
  infer::MatchRateOptions options() const;
};

}  // namespace draftsmith::evaluate
