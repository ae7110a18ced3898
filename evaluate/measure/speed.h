// Latency of a setting, its speed beside its baseline and bounds of its speedup, from records of lines (methods.md §3).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "evaluate/measure/measurement_store.h"
#include "metrics/resampling.h"

namespace draftsmith::evaluate {

// ---- Latency
// How long a user waits for a sentence, and for each of its tokens.

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

// ---- Speed

// Ratio with its bootstrap interval.
struct Ratio {
  double value = 0;
  metrics::Interval interval;
};

// Speed of a setting compared with its baseline on the same lines in the same process. A line's time is the median of
// its repetitions. All ratios are of sums over lines: a mean of the lines' own ratios would favour whichever setting's
// lengths vary, because E[X/Y] exceeds E[X]/E[Y].
struct Speed {
  int64_t lines = 0;            // timed lines
  int64_t tokens = 0;           // tokens emitted on the timed lines
  infer::PhaseSeconds seconds;  // sum of the lines' median repetitions
  double tokens_per_second = 0;
  double sentences_per_second = 0;  // lines, whatever their samples
  Latency latency;
  double ms_per_token = 0;
  double decode_ms_per_token = 0;      // without encoder and prefill
  std::optional<double> length_ratio;  // tokens over the baseline's; absent if no line was timed
  Ratio speedup;                       // ratio of tokens per second, end to end: the headline
  Ratio speedup_total;                 // ratio of times for the same lines: baseline's / setting's
  Ratio speedup_decode;                // ratio of tokens per second, without encoder and prefill

  // Returns whether outputs are longer or shorter than the baseline's by more than 2 %, so that a sentence takes
  // another share of time than a token.
  bool lengths_differ() const;
};

// Returns the speed of the setting with records `run`.
//
// Intervals are percentiles of a bootstrap that draws lines and, within a line, repetitions. A disturbance of the
// machine lasts longer than a line: lines of one turn share the drawn repetitions, one draw for each setting. Of lines
// timed once whole turns are drawn, because no repetition tells how turns differ.
// Errors: std::logic_error if the baseline has other lines.
Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline,
                    const metrics::ResamplingOptions& resampling);

// Returns the counts of the timed lines without prefills: what the time of decoding was spent on.
infer::DecodeStats timed_counts(const SettingRecords& run);

// Depth of the decoder, and of the part of it that a setting reads early.
struct LayerDepth {
  int64_t layers = 0;  // layers of the decoder
  int64_t early = 0;   // first layers that draft (early-exit, exits as drafters) or predict early (ppd); 0: none
};

// Returns the bound of speedup_decode: the setting's tokens per target run over the baseline's, without prefills. A
// target run costs at least a plain decoding step. Where layers of the model itself draft or predict early, latency
// units are compared instead of runs. Only for lines decoded one by one, since a batch runs as long as its slowest
// line. Returns 0 if the counts bound nothing.
double decode_bound(const SettingRecords& run, const SettingRecords& baseline, const LayerDepth& depth = {});

// Returns the bound of speedup_decode for outputs whose tokens leave a decoder of `layers` layers early (CALM): its
// layers over those that ran for a token. Heads and early exits' measures cost time on top. Returns 0 if the counts
// bound nothing.
double layer_bound(const SettingRecords& run, int64_t layers);

}  // namespace draftsmith::evaluate
