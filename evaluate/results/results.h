// The numbers of results.json. Measurements fill these structs; tables, plots, CSV, router tuning and model cards read
// them. results_json.cpp alone knows the file's keys.
//
// A number that is not known is NaN (null in the file); what a task or setting does not have is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluate/measure/records.h"
#include "evaluate/theory/ppd_simulation.h"
#include "infer/forced/match_rates.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {

// Values by name, in the order of the file.
template <class T>
using Named = std::vector<std::pair<std::string, T>>;

// Difference of a setting's leading score to greedy decoding's, from the paired bootstrap.
struct QualityDifference {
  double value = 0;
  metrics::Interval interval;
  double p_value = 1;
};

struct Quality {
  std::vector<metrics::NamedScore> scores;
  std::optional<QualityDifference> difference;  // absent for greedy decoding

  // Returns the score of that name, or nullptr.
  const metrics::NamedScore* find(const std::string& score) const;
};

struct SpeedResult : Speed {
  std::optional<double> bound;  // the most that speedup_decode can be (decode_bound)
};

// Counts and ratios of DecodeStats over all lines.
struct Acceptance {
  double alpha = 0;
  double acceptance_rate = 0;
  double tokens_per_target_run = 0;
  std::vector<int64_t> accepted_histogram;
  std::vector<double> acceptance_by_position;
  double fallback_rate = 0;
  double rollback_rate = 0;
  int64_t tokens = 0;
  int64_t target_runs = 0;
  int64_t draft_runs = 0;
  double target_runs_per_output = 0;
  double draft_runs_per_output = 0;
  int64_t verifications = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t fallbacks = 0;
  int64_t rollbacks = 0;
};

// What theory predicts of speedup_decode. With ppd only `speedup` is known, from Theorem 4.1.
struct PredictedSpeed {
  std::optional<double> cost_ratio;
  double speedup = 0;
  std::optional<double> speedup_from_counts;
  std::optional<double> e_pt_ms;  // SpecGame's latencies a token, fixed windows only
  std::optional<double> long_run_ms;
};

// Theorem 4.1 at the measured match rate, over outputs of the measured lengths.
struct PpdTheorem {
  double latency_per_token = 0;
  double compute_per_token = 0;
  double units_in_use = 0;
  double speedup = 0;
};

// What a setting did inside its own model: layers that ran, where tokens left (calm), what was predicted early (ppd).
struct Inside {
  int64_t layers = 0;               // of the decoder
  double layer_runs_per_token = 0;  // of all runs, those of rejected tokens included
  // Layers one after the other, which bound the time: a round of G tokens drafted with n of N layers takes G n + N; the
  // last token runs all; of calm the layer runs, of ppd its latency units.
  double path_per_token = 0;
  std::optional<double> average_exit_layer;            // calm
  std::optional<std::vector<int64_t>> exit_histogram;  // calm: tokens by layer 1..N
  std::optional<int64_t> early_layer;                  // ppd, like the next six
  std::optional<int64_t> candidates;
  std::optional<double> match_rate;
  std::optional<int64_t> early_predictions;
  std::optional<double> compute_per_token;
  std::optional<double> units_in_use;
  std::optional<PpdTheorem> theorem;
  std::optional<int64_t> exit_layer;  // early-exit and exits as drafters
  std::optional<PpdSimulation> simulation;
};

// Lines whose ids differ from greedy decoding of the same model.
struct Exactness {
  bool lossless = false;  // the method must not differ
  int64_t lines = 0;
  int64_t differing_lines = 0;
  // For lossless methods that differ: the largest margin of the two best logits where lines part.
  std::optional<double> largest_margin;
  std::optional<bool> explained_by_rounding;
};

// How well a model predicts given texts; of drafters also relative to the target: its choice, its distribution.
struct PredictionResult {
  double accuracy = 0;
  double cross_entropy = 0;
  std::optional<double> relative_accuracy;
  std::optional<double> relative_tv;
};

// Why a setting stands in a task's results: it was chosen on another task.
struct ChosenSetting {
  std::string on;  // task
  double max_drop = 0;
  std::string setting;
  double drop_there = 0;
  double speedup_there = 0;
  bool allowed = true;  // false: no setting lost so little, this one lost least
};

// One setting on one task. In the file a setting is called a run.
struct SettingResult {
  std::string name;
  std::string group;
  std::string method;
  nlohmann::ordered_json params = nlohmann::ordered_json::object();  // as the suite gave them
  std::string baseline;                                              // name of the setting it is compared with
  std::string hypotheses;                                            // file, relative to results.json
  Quality quality;
  SpeedResult speed;
  Acceptance acceptance;
  std::optional<PredictedSpeed> predicted;
  std::optional<Inside> inside;
  std::string drafter;  // Setting::drafter_label()
  std::optional<Exactness> exactness;
  std::optional<PredictionResult> prediction;  // of its drafter
  std::optional<ChosenSetting> chosen;
  std::optional<std::string> measurement_error;
};

struct ForcedAlphaResult {
  double temperature_0 = 0;
  double temperature_1 = 0;
  int64_t positions = 0;
};

// Step times and alpha_forced of a drafter, whatever method it serves.
struct DrafterResult {
  std::optional<double> cost_ratio;
  std::optional<double> draft_step_seconds;
  std::optional<std::vector<double>> target_step_seconds;  // [L-1] of an L-token step
  std::optional<ForcedAlphaResult> alpha_forced;
};

// How well each model and each drafter of a task predicts its texts (evaluate/suite/forced_texts.h).
struct TaskPrediction {
  std::string texts = "references";  // or "continuations"
  int64_t lines = 0;
  int64_t positions = 0;
  Named<PredictionResult> models;
};

struct TaskResult {
  std::string name;
  std::string metric = "bleu";
  std::string signature;
  int64_t lines = 0;
  int64_t cut_sources = 0;
  int64_t max_new_tokens = 0;
  bool chooses = false;  // validation data on which settings are chosen
  SettingResult baseline;
  std::vector<SettingResult> settings;
  Named<DrafterResult> drafters;
  std::optional<TaskPrediction> prediction;

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

struct Results {
  std::string suite;
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();  // machine, build, models
  nlohmann::ordered_json options;                                         // of the suite
  std::vector<TaskResult> tasks;
  std::vector<MatchRateResult> match_rates;
};

// Returns what results.json holds.
nlohmann::ordered_json to_json(const Results& results);
nlohmann::ordered_json to_json(const TaskResult& task);

// Returns the results in such a value. Missing numbers are NaN. Errors: nlohmann::json::exception for wrong types.
Results read_results(const nlohmann::ordered_json& json);

// Like read_results(), but checks the value first. Errors: UserError naming `where` and what keeps the value from being
// results.
Results results_from_json(const nlohmann::ordered_json& json, const std::string& where);

// Returns the results in a file. Errors: UserError when it cannot be read or is no results.json.
Results load_results(const std::filesystem::path& file);

}  // namespace draftsmith::evaluate
