// Latency of a setting and its speed beside its baseline, from records of lines (methods.md §3).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

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

// Ratio with its 95 % interval.
struct Ratio {
  double value = 0;
  metrics::Interval interval;
};

// Half of a 95 % interval as each source of error alone would make it: other lines, and the machine meanwhile.
// NaN: unknown, without two lines or two pairs of a line.
struct ErrorSources {
  double lines = std::numeric_limits<double>::quiet_NaN();
  double machine = std::numeric_limits<double>::quiet_NaN();
  double all = std::numeric_limits<double>::quiet_NaN();  // of both together; not in the file
};

// Logarithm of a ratio of two rates, from pairs of timings that stand beside each other in time (docs/methods.md).
struct PairedRatio {
  double log = std::numeric_limits<double>::quiet_NaN();  // NaN: something was not timed, or put out nothing
  std::vector<double> without = {};  // change of `log` without each line; without each turn, if no line has two pairs
  double machine = 0;                // variance of `log` by what pairs of the same line differ by
  double shared = 0;                 // part of it that lines of one turn have in common, which `without` does not hold
  double freedom = 0;                // degrees of freedom of both; 0: unknown
  double drift = 0;                  // variance by what whole rounds differ by beyond that; of few rounds unknown, 0
  double drift_freedom = 0;

  // Returns the errors of `log`.
  ErrorSources errors() const;
  Ratio ratio() const;
};

// Returns the ratio of `a` to `b`. Errors that the same lines put into both cancel.
PairedRatio operator/(const PairedRatio& a, const PairedRatio& b);

// Returns the ratio of tokens a second of a setting to its baseline's, from LineRecord::baseline, or else from the
// baseline's own repetitions. Errors: std::logic_error if the baseline has other lines.
PairedRatio paired_speedup(const SettingRecords& run, const SettingRecords& baseline);

// Speed of a setting beside its baseline on the same lines. A line's time is the median of its repetitions; ratios are
// those of pairs, summed over lines: a mean of the lines' own ratios would favour whichever setting's lengths vary.
struct Speed {
  int64_t lines = 0;            // timed lines
  int64_t tokens = 0;           // tokens emitted on the timed lines
  infer::PhaseSeconds seconds;  // sum of the lines' median repetitions
  double tokens_per_second = 0;
  double sentences_per_second = 0;  // lines, whatever their samples
  Latency latency;
  double ms_per_token = 0;
  double decode_ms_per_token = 0;  // without encoder and prefill
  Ratio speedup;                   // ratio of tokens per second, end to end: the headline. NaN: not timed
  ErrorSources speedup_error;
  Ratio speedup_total;   // ratio of times for the same lines: baseline's / setting's
  Ratio speedup_decode;  // ratio of tokens per second, without encoder and prefill
};

// Returns the speed of the setting with records `run`. Errors: std::logic_error if the baseline has other lines.
Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline);

// Returns the counts of the timed lines without prefills: what the time of decoding was spent on.
infer::DecodeStats timed_counts(const SettingRecords& run);

}  // namespace draftsmith::evaluate
