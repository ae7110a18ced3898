// Records of lines: output, counts and times of a line under a setting. Speeds and rates follow from them
// (evaluate/measure/speed.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/loop/decode_stats.h"

namespace draftsmith::evaluate {

// Output, counts and times of one line under one setting. With several samples of a line, counts and times are sums,
// and `ids` is the first sample.
struct LineRecord {
  std::vector<int64_t> ids;                      // new tokens, EOS included
  std::vector<int64_t> first_tokens = {};        // first new token of each sample; empty: not recorded
  infer::DecodeStats stats;                      // counts only; times are in `repetitions`
  int64_t prefill_runs = 0;                      // target runs of `stats` that were prefills and emitted a token
  int64_t turn = 0;                              // lines of one turn were timed one after the other
  std::vector<infer::PhaseSeconds> repetitions;  // empty: not timed
  std::vector<double> latencies = {};            // seconds of the whole batch, one a repetition; empty: unknown
  int64_t timed_again = 0;                       // timings that were thrown away: the machine stood still meanwhile
  // Tokens of the next batch's first windows (DecodeBatch::window); absent if windows do not go on across batches.
  std::optional<int64_t> window = std::nullopt;
  std::optional<std::string> failure = std::nullopt;  // defect of the model's numbers: no ids, no counts, not timed

  // Returns the repetition with the median total; of an even number the lower of the two in the middle.
  const infer::PhaseSeconds& median() const { return repetitions[median_index()]; }
  // Returns the index of that repetition. Errors: std::logic_error for a line that was not timed.
  size_t median_index() const;
  // Returns the latency of that repetition, in seconds; of lines without latencies its total.
  double latency() const;
  // Returns the number of tokens that all samples emitted.
  int64_t tokens() const { return stats.emitted; }
  // Returns output and counts. Errors of what reads them: nlohmann::json::exception for other values.
  nlohmann::json counts_json() const;
  static LineRecord from_counts(const nlohmann::json& json);
  // Returns the times: turn, repetitions, latencies, timed_again.
  nlohmann::json times_json() const;
  void set_times(const nlohmann::json& json);
};

// Records of a setting on a task, one for each line in order.
using SettingRecords = std::vector<LineRecord>;

// Adds the overhead of a batch to the last repetition of its records, each an equal share. The overhead is what remains
// of the `elapsed` seconds after all phases of all lines. Adds the repetition's latency.
void add_overhead(SettingRecords& batch, double elapsed);

// Returns the sum of the counts over all lines.
infer::DecodeStats sum_of_stats(const SettingRecords& run);

}  // namespace draftsmith::evaluate
