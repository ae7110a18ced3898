// Records of lines: output, counts and times of a line under a setting. Speeds and rates follow from them (methods.md
// §3).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/loop/decode_stats.h"
#include "metrics/resampling.h"

namespace draftsmith::evaluate {

// Output, counts and times of one line under one setting. With several samples of a line, counts and times are sums,
// and `ids` is the first sample.
struct LineRecord {
  std::vector<int64_t> ids;                      // new tokens, EOS included
  std::vector<int64_t> first_tokens = {};        // first new token of each sample; empty: not recorded
  infer::DecodeStats stats;                      // counts only; times are in `repetitions`
  int64_t prefill_runs = 0;                      // target runs of `stats` that were prefills and emitted a token
  std::vector<infer::PhaseSeconds> repetitions;  // empty: not timed
  // Tokens of the next batch's first windows (DecodeBatch::window); absent if windows do not go on across batches.
  std::optional<int64_t> window = std::nullopt;

  // Returns the repetition with the median total; of an even number the lower of the two in the middle.
  const infer::PhaseSeconds& median() const;
  // Returns the number of tokens that all samples emitted.
  int64_t tokens() const { return stats.emitted; }
  nlohmann::json to_json() const;
  // Reads what to_json() wrote. Errors: nlohmann::json::exception for other values.
  static LineRecord from_json(const nlohmann::json& json);
};

// Records of a setting on a task, one for each line in order.
using SettingRecords = std::vector<LineRecord>;

// Adds the overhead of a batch to the last repetition of its records, each an equal share. The overhead is what remains
// of the `elapsed` seconds after all phases of all lines.
void add_overhead(SettingRecords& batch, double elapsed);

// Ratio of times with its 95 % bootstrap interval over lines.
struct Ratio {
  double value = 0;
  metrics::Interval interval;
};

// Speed of a setting compared with its baseline on the same lines in the same process.
struct Speed {
  int64_t lines = 0;            // timed lines
  int64_t tokens = 0;           // tokens emitted on the timed lines
  infer::PhaseSeconds seconds;  // sum of the lines' median repetitions
  double tokens_per_second = 0;
  double ms_per_token = 0;
  double decode_ms_per_token = 0;  // without encoder and prefill
  Ratio speedup;                   // mean over lines of baseline time / setting's time, end to end
  Ratio speedup_total;             // total baseline time / setting's total time
  Ratio speedup_decode;            // per emitted token, without encoder and prefill
};

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

// Returns the speed of the setting with records `run`. Errors: std::logic_error if the baseline has other lines.
Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline,
                    const metrics::ResamplingOptions& resampling);

// Returns the sum of the counts over all lines.
infer::DecodeStats sum_of_stats(const SettingRecords& run);

}  // namespace draftsmith::evaluate
