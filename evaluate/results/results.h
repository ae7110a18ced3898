// Content of results.json: measurements fill these structs; tables, plots and CSV read them. An unknown number is NaN
// (null in the file); a part that a task or setting lacks is absent. Keys are members' names but for a few
// (results.cpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluate/measure/speed.h"
#include "infer/forced/match_rates.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {

// Values by name, in the order of the file.
template <class T>
using Named = std::vector<std::pair<std::string, T>>;

// Difference of a setting's leading score from its baseline's, by the paired bootstrap.
struct QualityDifference {
  double value = 0;
  metrics::Interval interval;
  double p_value = 1;
};

// Scores of a setting on a task.
struct Quality {
  std::vector<metrics::NamedScore> scores;
  std::optional<QualityDifference> difference;  // absent for baselines

  // Returns the score of that name, or nullptr.
  const metrics::NamedScore* find(const std::string& score) const;
};

// Counts and ratios of DecodeStats over all lines.
struct Acceptance {
  double alpha = 0;
  // True if the window rule ends drafts where the drafter is unsure: alpha then lacks the hard tokens. Absent without
  // drafts.
  std::optional<bool> alpha_conditional;
  double acceptance_rate = 0;
  double tokens_per_target_run = 0;
  std::vector<int64_t> accepted_histogram;
  std::vector<double> acceptance_by_position;
  double fallback_rate = 0;  // BiLD: runs of the large model a token
  double rollback_rate = 0;
  int64_t tokens = 0;
  int64_t target_runs = 0;
  int64_t draft_runs = 0;
  double target_runs_per_output = 0;
  double draft_runs_per_output = 0;
};

// Expected speedup_decode: of theory for fixed windows, and for ppd from theorem 4.1 (only `speedup`), or of counts.
struct PredictedSpeed {
  double speedup = 0;
  std::optional<double> e_pt_ms = {};  // SpecGame's latencies per token, fixed windows only
  std::optional<double> long_run_ms = {};
};

// Operations and bytes for one new token (infer/costs/decode_work.h). Ratios are to the task's greedy decoding.
struct WorkResult {
  double operations_per_token = 0;  // additions and multiplications
  double bytes_per_token = 0;       // of weights, keys and values
  std::optional<double> operations_ratio = {};
  std::optional<double> bytes_ratio = {};
  std::optional<double> intensity_ratio = {};
  std::optional<double> decode_operations_ratio = {};  // without encoders and prompts
  std::optional<double> theory_operations_ratio = {};  // the same by theorem 3.11 of Leviathan et al., fixed windows

  // Returns operations for each byte, the arithmetic intensity.
  double intensity() const { return operations_per_token / bytes_per_token; }
};

// Work inside a setting's own model: layers that ran, exits of tokens (calm), early predictions (ppd).
struct Inside {
  int64_t layers = 0;                                  // layers of the decoder
  double layer_runs_per_token = 0;                     // all runs, those for rejected tokens included
  double path_per_token = 0;                           // layers that ran one after the other, which bound the time
  std::optional<double> average_exit_layer;            // calm
  std::optional<std::vector<int64_t>> exit_histogram;  // calm: tokens by layer 1..N
  std::optional<int64_t> early_layer;                  // ppd; so are the three members below
  std::optional<double> match_rate;
  std::optional<double> units_in_use;
  std::optional<double> theorem_speedup;  // theorem 4.1 at the match rate, for outputs of the measured lengths
  std::optional<int64_t> exit_layer;      // early-exit and exits as drafters
};

// Place where an output begins to differ from greedy decoding. A token is absent where an output has ended.
struct Divergence {
  int64_t line = 0;      // counted from 0
  int64_t position = 0;  // new tokens before it
  std::optional<int64_t> token = {};
  std::optional<int64_t> greedy_token = {};
  double margin = 0;  // from the highest logit to the lower one of the two tokens', as the setting decides
};

// Lines whose ids differ from greedy decoding of the same model.
struct Exactness {
  bool lossless = false;  // the method guarantees equal lines
  int64_t lines = 0;
  int64_t differing_lines = 0;
  // The following members are those of lossless methods that differ.
  std::optional<double> largest_margin;         // of all divergences
  std::optional<double> tolerance;              // margin that rounding may turn round
  std::optional<Divergence> first_unexplained;  // of the first line with a larger margin; absent: rounding explains all
};

// Test of sampled first tokens against the distribution that they must have.
struct FirstTokenTest {
  int64_t tokens = 0;   // drawn first tokens, of all lines and samples
  double distance = 0;  // largest difference between the uniform distribution and that of the tokens' places
  double p_value = 1;
  bool passed = true;
};

// Lines that a setting could not decode. Their outputs count as empty in scores; speeds and counts lack them.
struct FailedLines {
  int64_t lines = 0;
  int64_t first = 0;  // index of the first one, counted from 0
  std::string failure;
};

// Quality of a model's predictions on given texts. Drafters are compared with the target, too.
struct PredictionResult {
  double accuracy = 0;
  double cross_entropy = 0;
  std::optional<double> relative_accuracy = {};  // agreement with the target's choice
  std::optional<double> relative_tv = {};        // total variation from the target's distribution
};

// Choice on another task that put a setting into the results.
struct ChosenSetting {
  std::string on = {};       // choosing task
  double max_drop = 0;       // points
  std::string setting = {};  // its own name
  double drop_there = 0;     // points lost against the baseline; negative: gained
  double speedup_there = 0;  // by which it was chosen; not in the file
  bool allowed = true;       // false: every setting lost more than max_drop, this one lost least
};

// Results of a setting on a task. The file calls a setting a run.
struct SettingResult {
  std::string name;
  std::string method;
  nlohmann::ordered_json params = nlohmann::ordered_json::object();  // as the suite gave them
  std::string baseline;                                              // name of the setting for comparison
  std::string hypotheses;                                            // file, relative to results.json
  Quality quality;
  Speed speed;
  Acceptance acceptance;
  std::optional<PredictedSpeed> predicted;
  std::optional<PredictedSpeed> accounted;  // what the counted runs cost at the measured times of steps
  std::optional<WorkResult> work;
  std::optional<Inside> inside;
  std::string drafter;  // Setting::drafter_label()
  std::optional<FailedLines> failed_lines;
  std::optional<Exactness> exactness;
  std::optional<FirstTokenTest> first_tokens;  // of settings that sample exactly
  std::optional<bool> lossless_check;          // whether a lossless setting, greedy or sampled, is lossless
  std::optional<ChosenSetting> chosen;
  std::optional<std::string> repeats;  // baseline that the setting measures a second time (A/A): its speedup is noise

  // Returns the drafter's name in the suite; empty without one.
  std::string drafter_name() const;
  // Returns the draft window; nothing if the suite gave none.
  std::optional<int64_t> window() const;
  // Returns whether a small model decodes until it falls back to the large one (BiLD and methods like it).
  bool falls_back() const;
};

// alpha_forced at temperature 0 on greedy outputs, and at temperature 1 on outputs sampled at temperature 1.
struct ForcedAlphaResult {
  double temperature_0 = 0;
  double temperature_1 = 0;
  int64_t positions = 0;
};

// Measures of a drafter, once for all methods.
struct DrafterResult {
  std::optional<double> cost_ratio;
  std::optional<ForcedAlphaResult> alpha_forced;
};

// Quality of the predictions of each model and drafter on a task's texts (evaluate/suite/tasks.h).
struct TaskPrediction {
  std::string texts = "references";  // or "continuations"
  int64_t lines = 0;
  int64_t positions = 0;
  Named<PredictionResult> models;
};

// Setting that a task's results lack, or lack a part of, with the reason.
struct SettingFailure {
  std::string setting;  // its name in the results, or "drafter NAME" for measurements of a drafter
  std::string during;   // "decoding", "timing", "scoring", "choosing", "teacher-forced passes", "step times", "checks"
  std::string message;  // one line
};

// Results of all settings on a task.
struct TaskResult {
  std::string name;
  std::string metric = "bleu";
  std::string signature;
  std::optional<metrics::CommandOptions> command = {};  // of the metric command
  std::optional<std::string> warning = {};              // of the metric about the baseline's outputs and references
  int64_t lines = 0;
  int64_t cut_sources = 0;
  int64_t timed_again = 0;  // pairs of timings that were thrown away because the machine stood still
  int64_t max_new_tokens = 0;
  bool chooses = false;  // settings are chosen on this task (validation data)
  SettingResult baseline;
  std::vector<SettingResult> settings;
  Named<DrafterResult> drafters;
  std::optional<TaskPrediction> prediction;
  std::vector<SettingFailure> failures;  // settings that are missing, or lack a part

  // Returns the setting of that name, the baseline included, or nullptr.
  const SettingResult* find(const std::string& setting) const;
  // Returns the baseline and the settings, in the order of tables.
  std::vector<const SettingResult*> rows() const;
};

// Match rates of early predictions: a [[match_rates]] table of the suite.
struct MatchRateResult {
  std::string name;
  std::string task;
  std::string model;
  int64_t prompts = 0;
  std::vector<infer::MatchRate> cells;
};

// One threshold of an engagement curve's policy.
struct EngagementPoint {
  std::string policy;  // "oracle" or "fallback"
  double threshold = 0;
  int64_t tokens = 0;              // of all outputs
  int64_t engaged = 0;             // decided by the large model
  std::optional<int64_t> changed;  // oracle: decided tokens that are others than the small model's
  Quality quality;                 // its difference is from the large model alone

  // Returns the share of tokens that the large model decided, 0..1; NaN without tokens.
  double engaged_share() const;
};

// Quality against the share of tokens that the large model decides (infer/engagement.h): a suite's [[engagement]].
struct EngagementResult {
  std::string name;
  std::string task;
  std::string drafter;  // small model
  int64_t lines = 0;
  Quality large;  // of the large model alone on the same lines
  std::vector<EngagementPoint> points;
};

// Content of a results.json.
struct Results {
  std::string suite;
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();  // machine, build, models
  nlohmann::ordered_json options = nlohmann::ordered_json::object();      // resolved options of the suite
  std::vector<TaskResult> tasks;
  std::vector<MatchRateResult> match_rates;
  std::vector<EngagementResult> engagement;

  // Returns a text or number of the environment as text; empty if it was not recorded.
  std::string environment_text(const std::string& key) const;
};

// Returns the JSON of results.json.
nlohmann::ordered_json to_json(const Results& results);

// Returns the results in the JSON of a results.json; `where` names it in errors. Missing numbers are NaN. Errors:
// UserError for another version, and with the key of a value that no evaluation writes.
Results results_from_json(const nlohmann::ordered_json& json, const std::string& where);

// Returns the results in a file. Errors: UserError if it cannot be read or is no results.json.
Results load_results(const std::filesystem::path& file);

// Throws a UserError if a file has results of another version, which a newer program may read.
void require_replaceable_results(const std::filesystem::path& file);

}  // namespace draftsmith::evaluate
