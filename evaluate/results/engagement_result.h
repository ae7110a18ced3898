// Engagement curves: quality against the share of tokens that the large model decides (infer/engagement.h), an
// [[engagement]] table of the suite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/results/quality.h"

namespace draftsmith::evaluate {

// One threshold of a policy.
struct EngagementPoint {
  std::string policy;  // "oracle" or "fallback"
  double threshold = 0;
  int64_t tokens = 0;              // of all outputs
  int64_t engaged = 0;             // decided by the large model
  std::optional<int64_t> changed;  // oracle: decided tokens that are others than the small model's
  Quality quality;                 // its difference is from the large model alone

  // Return the shares of tokens, 0..1; NaN without tokens.
  double engaged_share() const;
  std::optional<double> changed_share() const;
};

struct EngagementResult {
  std::string name;
  std::string task;
  std::string drafter;  // small model
  int64_t lines = 0;
  Quality large;  // of the large model alone on the same lines
  std::vector<EngagementPoint> points;
};

}  // namespace draftsmith::evaluate
