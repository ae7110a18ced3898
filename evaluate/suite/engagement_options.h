// Options of engagement curves (infer/engagement.h) in a suite: an [[engagement]] table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace draftsmith::evaluate {

struct EngagementTable {
  std::string name;
  std::string task;
  std::string drafter;
  std::vector<double> oracle{0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1};
  std::vector<double> fallback{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
  int64_t lines = 0;
  static Fields<EngagementTable> fields();
};

}  // namespace draftsmith::evaluate
