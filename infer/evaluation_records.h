// What one line costs and gives under one setting, and the totals that speeds and rates are made of (methods.md §3).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/metrics/resampling.h"

namespace draftsmith::infer {

// Seconds of one line, split by phase.
struct PhaseSeconds {
  double encode = 0;
  double prefill = 0;
  double draft = 0;
  double verify = 0;
  double other = 0;

  double total() const { return encode + prefill + draft + verify + other; }
  // Without encoder and prefill.
  double decode() const { return draft + verify + other; }
};

// One line under one setting: what came out, how, and how long each repetition took.
struct LineRecord {
  std::vector<int64_t> ids;  // new tokens, EOS included
  int64_t target_runs = 0;   // prefill included if its logits emit a token
  int64_t draft_runs = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t fallbacks = 0;
  int64_t rollbacks = 0;
  int64_t examined = 0;  // drafted positions that verification looked at
  double overlap = 0;    // sum over these of the probability mass that p and q share
  std::vector<int64_t> accepted_histogram;
  std::vector<PhaseSeconds> repetitions;  // empty: not timed

  // The repetition whose total is the median (the lower one of two).
  const PhaseSeconds& median() const;
  nlohmann::json to_json() const;
  // Errors: nlohmann::json::exception for anything that to_json did not write.
  static LineRecord from_json(const nlohmann::json& json);
};

// One setting on one task: a record for each line, in order.
using RunRecords = std::vector<LineRecord>;

// A ratio of times with its 95 % bootstrap interval over lines.
struct Ratio {
  double value = 0;
  Interval interval;
};

// Speed of a run beside its baseline on the same lines in the same process.
struct Speed {
  int64_t lines = 0;    // timed
  int64_t tokens = 0;   // emitted on these
  double seconds = 0;   // median repetitions added up
  PhaseSeconds phases;  // totals
  double tokens_per_second = 0;
  double ms_per_token = 0;
  Ratio speedup;         // mean over lines of baseline time / run time, end to end
  Ratio speedup_total;   // total baseline time / total run time
  Ratio speedup_decode;  // per emitted token, without encoder and prefill
};

Speed measure_speed(const RunRecords& run, const RunRecords& baseline, const ResamplingOptions& resampling);

// Counts of a run over all its lines.
struct Acceptance {
  int64_t tokens = 0;
  int64_t target_runs = 0;
  int64_t draft_runs = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t fallbacks = 0;
  int64_t rollbacks = 0;
  std::optional<double> alpha;  // nothing was examined: absent
  double acceptance_rate = 0;   // accepted / drafted
  double tokens_per_target_run = 0;
  double fallback_rate = 0;  // large runs / generated tokens
  double rollback_rate = 0;  // rolled-back events / generated tokens
  std::vector<int64_t> accepted_histogram;
  std::vector<double> acceptance_by_position;  // P(token j accepted | j-1 accepted and a token j drafted)
};

Acceptance measure_acceptance(const RunRecords& run);

}  // namespace draftsmith::infer
