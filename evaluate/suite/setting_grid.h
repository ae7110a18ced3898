// Settings: one method with its options each, and the expansion of a suite's grids to settings with their baselines.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluate/suite/suite_options.h"
#include "infer/decode_options.h"

namespace draftsmith::evaluate {

// Returns a name for files: `text` with '_' in place of all but ASCII letters, digits, '.', '-' and '_'.
std::string file_safe(std::string text);

// Method with one value for each parameter. Parameters that were not given keep the method's default.
struct Setting {
  std::string label;                // unique in a suite, safe in file names: "bild.aligned.FB0.5.RB2"
  std::string group;                // label without the grid's parameters; one of a group is chosen
  std::string model = kTargetName;  // model that decodes: the target or a drafter alone
  std::string drafter;              // empty: none
  DecodeOptions decode;
  std::string choose_on;
  std::vector<double> max_drop;
  std::string repeats;  // label of the baseline that is measured a second time (A/A); empty: none

  const std::string& method() const { return decode.method; }
  infer::Algorithm algorithm() const { return decode.method_info().algorithm; }
  double temperature() const { return decode.temperature.value_or(0); }
  bool decodes_target() const { return model == kTargetName; }
  bool is_greedy_baseline() const { return label == kGreedyLabel; }
  // Returns whether the output must equal greedy decoding of the setting's own model. False for the baselines.
  bool lossless() const;
  // Returns whether the setting samples, and every output must have the distribution of its own model: plain sampling,
  // ppd, and drafting with a lossless acceptance rule.
  bool samples_exactly() const;
  // Returns whether the output follows the target's distribution at every temperature.
  bool follows_target() const;
  // Returns whether layers of the model itself draft, leave early or run ahead (early-exit, calm, ppd).
  bool inside() const { return decode.drafts_inside() || decode.decodes_inside(); }
  // Returns the drafter's name with its exits and the model it drafts for: "small", "other/exit2 [heads]". Each drafter
  // of a suite has another one.
  std::string drafter_label() const;
  // Returns the parameters that were given, for results.json; infinite thresholds become the string "inf".
  nlohmann::ordered_json params() const;
};

// Returns greedy decoding of the target, the first setting of every suite.
Setting greedy_baseline();

// Returns the autoregressive setting that `setting` is compared with: greedy, or sampling with the same warping.
Setting baseline_of(const Setting& setting);

// Returns greedy decoding of the setting's own model, whose tokens a lossless setting at temperature 0 must give.
Setting greedy_of(const Setting& setting);
// Returns sampling of the setting's own model at temperature 1, for alpha_forced. No setting of a suite has its label.
Setting sampling_of(const Setting& setting);
// Returns whether greedy_of(setting) is decoded: outputs are compared with it, or alpha_forced is measured on it.
bool compares_with_own_greedy(const Setting& setting);

// Returns all settings of a grid, drafters slowest. Those with `batch_size`, the suite's own, have none of theirs.
std::vector<Setting> expand_grid(const SettingGrid& grid, int64_t batch_size = 1);

// Returns the settings of the suite's grids in their order, each after the baselines that it needs, greedy_baseline()
// first. Errors: UserError if two settings have the same label.
std::vector<Setting> expand_settings(const SuiteOptions& options);

// Returns the settings with each baseline a second time after itself ("A/A greedy"), when sampling with another seed.
// Differences between the two are noise.
std::vector<Setting> with_repeated_baselines(const std::vector<Setting>& settings);

// Returns the name of the setting that a group chose for a value of max_drop: "bild.aligned.drop1".
std::string chosen_label(const std::string& group, double max_drop);

// Returns the suite with router defaults where a run lists no thresholds or no longest drafts, so that results record
// them. Errors: UserError for a damaged router. A missing router is refused later.
SuiteOptions with_router_defaults(const SuiteOptions& options);

}  // namespace draftsmith::evaluate
