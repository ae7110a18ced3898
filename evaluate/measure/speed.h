// Latency of a setting and its speed beside its baseline, from records of lines (methods.md §3).
#pragma once

#include <cstdint>
#include <limits>

#include "evaluate/measure/measurement_store.h"
#include "metrics/resampling.h"

namespace draftsmith::evaluate {

// Percentiles over lines, interpolated between neighbours. NaN: no line was timed.
struct Percentiles {
  double p50 = std::numeric_limits<double>::quiet_NaN();
  double p95 = std::numeric_limits<double>::quiet_NaN();
  double p99 = std::numeric_limits<double>::quiet_NaN();
};

// Times in milliseconds, of each line's median repetition. A sentence takes as long as its batch; outputs without
// tokens have no time a token.
struct Latency {
  Percentiles sentence_ms;
  Percentiles token_ms;  // a sentence's time over the tokens of one of its outputs
};

Latency measure_latency(const SettingRecords& run);

// Ratio with its bootstrap interval.
struct Ratio {
  double value = 0;
  metrics::Interval interval;
};

// Speed of a setting beside its baseline on the same lines. A line's time is the median of its repetitions. Ratios are
// of sums over lines: a mean of the lines' own ratios would favour whichever setting's lengths vary.
struct Speed {
  int64_t lines = 0;            // timed lines
  int64_t tokens = 0;           // tokens emitted on the timed lines
  infer::PhaseSeconds seconds;  // sum of the lines' median repetitions
  double tokens_per_second = 0;
  double sentences_per_second = 0;  // lines, whatever their samples
  Latency latency;
  double ms_per_token = 0;
  double decode_ms_per_token = 0;  // without encoder and prefill
  Ratio speedup;                   // ratio of tokens per second, end to end: the headline
  Ratio speedup_total;             // ratio of times for the same lines: baseline's / setting's
  Ratio speedup_decode;            // ratio of tokens per second, without encoder and prefill
};

// Returns the speed of the setting with records `run`. Intervals are percentiles of a bootstrap that draws lines and,
// within a line, repetitions; lines of one turn share the draw, since a disturbance lasts longer than a line. Of lines
// timed once whole turns are drawn. Errors: std::logic_error if the baseline has other lines.
Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline,
                    const metrics::ResamplingOptions& resampling);

// Returns the counts of the timed lines without prefills: what the time of decoding was spent on.
infer::DecodeStats timed_counts(const SettingRecords& run);

}  // namespace draftsmith::evaluate
