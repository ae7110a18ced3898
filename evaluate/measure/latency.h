// Latencies of a setting: how long a user waits for a sentence, and for each of its tokens.
#pragma once

#include <limits>

#include "evaluate/measure/records.h"

namespace draftsmith::evaluate {

// Percentiles over lines, with linear interpolation between neighbours. NaN: no line was timed.
struct Percentiles {
  double p50 = std::numeric_limits<double>::quiet_NaN();
  double p95 = std::numeric_limits<double>::quiet_NaN();
  double p99 = std::numeric_limits<double>::quiet_NaN();
};

// Times in milliseconds. A sentence takes as long as the batch that it is decoded in; a line's repetition is the one
// with its median time. Outputs without tokens have no time a token.
struct Latency {
  Percentiles sentence_ms;
  Percentiles token_ms;  // a sentence's time over the tokens of one of its outputs
};

Latency measure_latency(const SettingRecords& run);

}  // namespace draftsmith::evaluate
