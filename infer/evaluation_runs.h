// One setting of one method, and the grids that suites span of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/evaluation_options.h"

namespace draftsmith::infer {

// A method with one value for each parameter; parameters that were not given keep the method's default.
struct RunSettings {
  std::string label;  // unique in a suite, safe in file names: "bild.aligned.fallback0.5.rollback2"
  std::string method;
  std::string model = "target";  // "target" or the name of a drafter that decodes alone
  std::string drafter;           // empty: none
  std::optional<int64_t> window;
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;
  double top_p = 1;
  std::optional<double> fallback;
  std::optional<double> rollback;
  std::optional<int64_t> max_draft;
  std::string choose_on;
  std::vector<double> max_drop;

  bool is_baseline_method() const { return method == "greedy" || method == "sample"; }
  // What was given, for results.json; infinite thresholds become the string "inf".
  nlohmann::ordered_json params() const;
};

// Greedy decoding of the target: every suite's first run.
RunSettings greedy_baseline();

// The autoregressive run that `run` is compared with: greedy, or sampling with the same warping.
RunSettings baseline_of(const RunSettings& run);

// All settings of all runs, in the order of the suite, each baseline that they need before them.
// Errors: UserError when two settings get the same label.
std::vector<RunSettings> expand_runs(const EvaluationOptions& options);

}  // namespace draftsmith::infer
