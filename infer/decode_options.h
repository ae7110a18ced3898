// Options of decoding: the method, its parts' parameters, sampling, lengths and batching.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace draftsmith::infer {

struct DecodeOptions {
  std::string method = "greedy";
  std::optional<int64_t> window;       // absent: 5; 20 for assisted's constant schedule
  std::string schedule = "heuristic";  // of the dynamic window
  std::optional<double> confidence;    // dynamic window's stop; absent: 0.4 for constant, 0 (off) for heuristic
  std::optional<double> temperature;   // absent: 0, or for sample and speculative the model's own setting, else 1
  std::optional<int64_t> top_k;        // absent: the model's own setting, else 0 (off)
  std::optional<double> top_p;         // absent: the model's own setting, else 1 (off)
  uint64_t seed = 1;
  double fallback = 0.5;
  double rollback = 5.0;
  int64_t max_draft = 10;
  std::string rollback_rule = "effective";
  std::optional<std::string> window_rule;  // absent: the method's own
  std::optional<std::string> acceptance;   // absent: the method's own
  std::optional<int64_t> max_new_tokens;   // absent: the model's own setting, else 128
  int64_t min_new_tokens = 0;
  std::string long_prompts = "error";
  int64_t num_samples = 1;
  int64_t batch_size = 1;
  bool measure_alpha = false;

  static Fields<DecodeOptions> fields();

  // Whether the method drafts, i.e. needs a drafter.
  bool drafts() const { return method != "greedy" && method != "sample"; }
  // Whether the method samples when no temperature is given.
  bool samples_by_default() const { return method == "sample" || method == "speculative"; }
  // Names of the method's parts, overrides included; empty for methods without parts.
  std::string window_rule_name() const;
  std::string acceptance_name() const;
};

}  // namespace draftsmith::infer
