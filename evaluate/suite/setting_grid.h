// One setting of one method, and the grids that suites span of them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluate/suite/suite_options.h"
#include "infer/decode_options.h"

namespace draftsmith::evaluate {

// `text` with everything but ASCII letters, digits, '.', '-' and '_' replaced by '_': a name for files.
std::string file_safe(std::string text);

// A method with one value for each parameter; parameters that were not given keep the method's default.
struct Setting {
  std::string label;             // unique in a suite, safe in file names: "bild.aligned.FB0.5.RB2"
  std::string group;             // label without the grid's parameters: choices are made inside a group
  std::string model = "target";  // "target" or the name of a drafter that decodes alone
  std::string drafter;           // empty: none
  infer::DecodeOptions decode;
  std::string choose_on;
  std::vector<double> max_drop;

  const std::string& method() const { return decode.method; }
  double temperature() const { return decode.temperature.value_or(0); }
  // Whether the output must equal greedy decoding of the run's own model token by token.
  bool lossless() const;
  // The same of the suite's target.
  bool equals_greedy() const { return lossless() && model == "target"; }
  // Whether layers of the model itself draft, leave early or run ahead (early-exit, calm, ppd).
  bool inside() const { return decode.drafts_inside() || method() == "calm" || method() == "ppd"; }
  // Names what drafts, with exits given, for which model: "small", "other/exit2 [heads]". A suite has one of each name.
  std::string drafter_label() const;
  // What was given, for results.json; infinite thresholds become the string "inf".
  nlohmann::ordered_json params() const;
};

// Greedy decoding of the target: every suite's first run.
Setting greedy_baseline();

// The autoregressive run that `run` is compared with: greedy, or sampling with the same warping.
Setting baseline_of(const Setting& run);

// Greedy decoding of the run's own model, whose tokens a lossless run at temperature 0 must give.
Setting greedy_of(const Setting& run);
// Whether these are decoded: at temperature 0 outputs are compared with them, and of any model alpha_forced is
// measured.
bool compares_with_own_greedy(const Setting& run);

// All points of one run's grid.
std::vector<Setting> expand_run(const SettingGrid& run);

// Name of the setting that a group chose for a value of max_drop: "bild.aligned.drop1".
std::string chosen_label(const std::string& group, double max_drop);

// All settings of all runs, in the order of the suite, each baseline that they need before them.
// Errors: UserError when two settings get the same label.
std::vector<Setting> expand_runs(const SuiteOptions& options);

}  // namespace draftsmith::evaluate
