// What one line costs and gives under one setting, and the totals that speeds and rates are made of (methods.md §3).
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/loop/decode_stats.h"
#include "metrics/resampling.h"

namespace draftsmith::evaluate {

// One line under one setting: what came out, how, and how long each repetition took. Of several samples of a line
// counts and times are sums, `ids` the first one's.
struct LineRecord {
  std::vector<int64_t> ids;                      // new tokens, EOS included
  infer::DecodeStats stats;                      // counts; its times are in `repetitions`
  int64_t prefill_runs = 0;                      // of stats.target_runs, prefills whose logits emitted a token
  std::vector<infer::PhaseSeconds> repetitions;  // empty: not timed

  // The repetition whose total is the median (the lower one of two).
  const infer::PhaseSeconds& median() const;
  // Emitted, by all samples.
  int64_t tokens() const { return stats.emitted; }
  nlohmann::json to_json() const;
  // Errors: nlohmann::json::exception for anything that to_json did not write.
  static LineRecord from_json(const nlohmann::json& json);
};

// One setting on one task: a record for each line, in order.
using SettingRecords = std::vector<LineRecord>;

// Adds to the last repetition of each of a batch's records an equal share of what the lines' phases leave out of the
// batch's `elapsed` seconds: overhead, which counts. Lines share the phases' times already, whatever their lengths.
void add_overhead(SettingRecords& batch, double elapsed);

// A ratio of times with its 95 % bootstrap interval over lines.
struct Ratio {
  double value = 0;
  metrics::Interval interval;
};

// Speed of a run beside its baseline on the same lines in the same process.
struct Speed {
  int64_t lines = 0;            // timed
  int64_t tokens = 0;           // emitted on these
  infer::PhaseSeconds seconds;  // median repetitions added up
  double tokens_per_second = 0;
  double ms_per_token = 0;
  double decode_ms_per_token = 0;  // without encoder and prefill
  Ratio speedup;                   // mean over lines of baseline time / run time, end to end
  Ratio speedup_total;             // total baseline time / total run time
  Ratio speedup_decode;            // per emitted token, without encoder and prefill
};

// How far a run goes into the layers of the model that decodes.
struct LayerDepth {
  int64_t layers = 0;  // of its decoder
  int64_t early = 0;   // of these, how many draft (early-exit, exits as drafters) or predict early (ppd); 0: none
};

// The most that speedup_decode can be when a target run costs at least a plain decoding step: emitted tokens a target
// run of the run, over those of the baseline, prefills left out, on the timed lines. For lines decoded one by one only:
// the target runs of a batch are those of its slowest line, which sums over lines do not show.
// Where layers of the model itself draft or predict early, in layers one after the other: the latency units counted.
// 0 where nothing was counted that would bound it.
double decode_bound(const SettingRecords& run, const SettingRecords& baseline, const LayerDepth& depth = {});

Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline,
                    const metrics::ResamplingOptions& resampling);

// Counts of a run over all its lines.
infer::DecodeStats sum_of_stats(const SettingRecords& run);

}  // namespace draftsmith::evaluate
