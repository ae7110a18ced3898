// Reading and writing of results.json.
#include "evaluate/results/results.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {
namespace {

using metrics::Interval;
using nlohmann::ordered_json;

constexpr int64_t kVersion = 1;  // of results.json, of which this program writes and reads no other
constexpr const char* kIntervalKey = "_ci95";
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Returns the value of a key; null if `object` is no object or lacks it.
const ordered_json& value_of(const ordered_json& object, std::string_view key) {
  static const ordered_json kNull;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNull : *found;
}

// Keys of a struct T: Keys<T>::each(io, value) calls io(key, member) for each member in the order of the file.
template <class T>
struct Keys;

#define DRAFTSMITH_KEY(member) io(#member, value.member);
#define DRAFTSMITH_MEMBERS(...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(DRAFTSMITH_KEY, __VA_ARGS__))
// Defines Keys of a struct whose keys are its members' names.
#define DRAFTSMITH_KEYS(Type, ...)                                               \
  template <>                                                                    \
  struct Keys<Type> {                                                            \
    static void each(auto&& io, auto& value) { DRAFTSMITH_MEMBERS(__VA_ARGS__) } \
  }

DRAFTSMITH_KEYS(infer::PhaseSeconds, encode, prefill, draft, verify, other);
DRAFTSMITH_KEYS(Percentiles, p50, p95, p99);
DRAFTSMITH_KEYS(Latency, sentence_ms, token_ms);
DRAFTSMITH_KEYS(ErrorSources, lines, machine);
DRAFTSMITH_KEYS(Speed, lines, tokens, tokens_per_second, ms_per_token, speedup, speedup_error, speedup_total,
                speedup_decode, decode_ms_per_token, seconds, sentences_per_second, latency);
DRAFTSMITH_KEYS(Acceptance, alpha, alpha_conditional, acceptance_rate, tokens_per_target_run, accepted_histogram,
                acceptance_by_position, fallback_rate, rollback_rate, tokens, target_runs, draft_runs,
                target_runs_per_output, draft_runs_per_output);
DRAFTSMITH_KEYS(PredictedSpeed, speedup, e_pt_ms, long_run_ms);
DRAFTSMITH_KEYS(WorkResult, operations_per_token, bytes_per_token, operations_ratio, bytes_ratio, intensity_ratio,
                decode_operations_ratio, theory_operations_ratio);
DRAFTSMITH_KEYS(Inside, layers, layer_runs_per_token, path_per_token, average_exit_layer, exit_histogram, early_layer,
                match_rate, units_in_use, theorem_speedup, exit_layer);
DRAFTSMITH_KEYS(Divergence, line, position, token, greedy_token, margin);
DRAFTSMITH_KEYS(Exactness, lossless, lines, differing_lines, largest_margin, tolerance, first_unexplained);
DRAFTSMITH_KEYS(FirstTokenTest, tokens, distance, p_value, passed);
DRAFTSMITH_KEYS(FailedLines, lines, first, failure);
DRAFTSMITH_KEYS(SettingFailure, setting, during, message);
DRAFTSMITH_KEYS(PredictionResult, accuracy, cross_entropy, relative_accuracy, relative_tv);
DRAFTSMITH_KEYS(ChosenSetting, on, max_drop, setting, drop_there, allowed);
DRAFTSMITH_KEYS(ForcedAlphaResult, temperature_0, temperature_1, positions);
DRAFTSMITH_KEYS(DrafterResult, cost_ratio, alpha_forced);
DRAFTSMITH_KEYS(TaskPrediction, texts, lines, positions, models);
DRAFTSMITH_KEYS(metrics::CommandOptions, command, label, input, point, lower_is_better);
DRAFTSMITH_KEYS(infer::MatchRate, decoding, layer, k, trained, positions, matches, tokens);
DRAFTSMITH_KEYS(MatchRateResult, name, task, model, prompts, cells);
DRAFTSMITH_KEYS(EngagementPoint, policy, threshold, tokens, engaged, changed, quality);
DRAFTSMITH_KEYS(EngagementResult, name, task, drafter, lines, large, points);
DRAFTSMITH_KEYS(Results, suite, environment, options, tasks, match_rates, engagement);

template <>
struct Keys<SettingResult> {
  static void each(auto&& io, auto& value) {
    DRAFTSMITH_MEMBERS(name, method, params, baseline, hypotheses, quality, speed, acceptance, predicted)
    DRAFTSMITH_MEMBERS(accounted, work, inside)
    io("drafting", value.drafter);
    DRAFTSMITH_MEMBERS(failed_lines, exactness, first_tokens, lossless_check, chosen, repeats)
  }
};

template <>
struct Keys<TaskResult> {
  static void each(auto&& io, auto& value) {
    DRAFTSMITH_MEMBERS(name, metric, signature)
    io("command_metric", value.command);
    DRAFTSMITH_MEMBERS(warning, lines, cut_sources, timed_again, max_new_tokens, chooses, baseline)
    io("runs", value.settings);
    DRAFTSMITH_MEMBERS(drafters, prediction, failures)
  }
};

template <class T>
concept Absent = requires(T value) {
  value.reset();
};  // std::optional
template <class T>
concept List = requires(T value) {
  value.emplace_back();
};
template <class T>
concept ByName = requires(T value) {
  value.front().first;
};  // Named

template <class T>
ordered_json written(const T& value);

// Writes the value of a key, unless it is absent. Ratios have a second key for their interval.
template <class T>
void write_key(ordered_json& json, const std::string& key, const T& value) {
  if constexpr (Absent<T>) {
    if (value) write_key(json, key, *value);
  } else if constexpr (std::is_same_v<T, Ratio>) {
    json[key] = finite_or_null(value.value);
    json[key + kIntervalKey] = written(value.interval);
  } else {
    json[key] = written(value);
  }
}

// Writes scores under their own names.
void write_quality(ordered_json& json, const Quality& quality) {
  for (const auto& score : quality.scores) write_key(json, score.name, Ratio{score.value, score.interval});
  if (!quality.difference) return;
  write_key(json, "difference", Ratio{quality.difference->value, quality.difference->interval});
  write_key(json, "p_value", quality.difference->p_value);
}

template <class T>
ordered_json written(const T& value) {
  ordered_json json;
  if constexpr (std::is_same_v<T, ordered_json>) {
    json = value;
  } else if constexpr (std::is_same_v<T, double>) {
    json = finite_or_null(value);
  } else if constexpr (std::is_same_v<T, Interval>) {
    json = {finite_or_null(value.low), finite_or_null(value.high)};
  } else if constexpr (std::is_same_v<T, Quality>) {
    json = ordered_json::object();
    write_quality(json, value);
  } else if constexpr (ByName<T>) {
    json = ordered_json::object();
    for (const auto& [name, one] : value) json[name] = written(one);
  } else if constexpr (List<T>) {
    json = ordered_json::array();
    for (const auto& one : value) json.push_back(written(one));
  } else if constexpr (requires { sizeof(Keys<T>); }) {
    json = ordered_json::object();
    Keys<T>::each([&](const char* key, const auto& member) { write_key(json, key, member); }, value);
  } else {
    json = value;
  }
  return json;
}

// Reads the values of a results.json. Missing and null numbers are NaN, other missing values keep their defaults.
// Errors: nlohmann::json::exception for a value of another type, with its keys in `place`.
struct ResultsReader {
  std::vector<std::string> place = {};

  template <class T>
  void key(const ordered_json& object, const std::string& name, T& value) {
    static const ordered_json kNothing = ordered_json::object();
    const auto found = object.find(name);
    const bool given = found != object.end();
    place.push_back(name);
    if constexpr (Absent<T>) {
      if (given) read(*found, value.emplace());
    } else if constexpr (std::is_same_v<T, Ratio>) {
      value = {.value = kUnknown, .interval = {kUnknown, kUnknown}};
      if (given) read(*found, value.value);
      if (object.contains(name + kIntervalKey)) read(object.at(name + kIntervalKey), value.interval);
    } else if constexpr (requires { sizeof(Keys<T>); }) {
      read(given ? *found : kNothing, value);
    } else if (given) {
      read(*found, value);
    } else if constexpr (std::is_same_v<T, double>) {
      value = kUnknown;
    }
    place.pop_back();
  }

  void read(const ordered_json& json, Quality& quality) {
    for (const auto& [name, score] : json.get_ref<const ordered_json::object_t&>()) {
      if (name.ends_with(kIntervalKey) || name == "difference" || name == "p_value") continue;
      Ratio ratio;
      key(json, name, ratio);
      quality.scores.push_back({name, ratio.value, ratio.interval});
    }
    if (!json.contains("difference")) return;
    Ratio difference;
    key(json, "difference", difference);
    quality.difference = {.value = difference.value, .interval = difference.interval};
    key(json, "p_value", quality.difference->p_value);
  }

  template <class T>
  void read(const ordered_json& json, T& value) {
    if constexpr (std::is_same_v<T, ordered_json>) {
      value = json;
    } else if constexpr (std::is_same_v<T, double>) {
      value = json.is_null() ? kUnknown : json.get<double>();
    } else if constexpr (std::is_same_v<T, Interval>) {
      read(json.at(0), value.low);
      read(json.at(1), value.high);
    } else if constexpr (ByName<T>) {
      for (const auto& [name, one] : json.get_ref<const ordered_json::object_t&>()) {
        key(json, name, value.emplace_back(name, typename T::value_type::second_type()).second);
      }
    } else if constexpr (List<T>) {
      for (const auto& one : json.get_ref<const ordered_json::array_t&>()) {
        place.push_back(std::to_string(value.size()));
        read(one, value.emplace_back());
        place.pop_back();
      }
    } else if constexpr (requires { sizeof(Keys<T>); }) {
      json.get_ref<const ordered_json::object_t&>();  // throws for another type
      Keys<T>::each([&](const char* name, auto& member) { key(json, name, member); }, value);
    } else {
      json.get_to(value);
    }
  }
};

}  // namespace

const metrics::NamedScore* Quality::find(const std::string& score) const {
  const auto found = std::find_if(scores.begin(), scores.end(), [&](const auto& one) { return one.name == score; });
  return found == scores.end() ? nullptr : &*found;
}

std::string SettingResult::drafter_name() const {
  return params.value("drafter", "");
}

std::optional<int64_t> SettingResult::window() const {
  const bool known = params.contains("window") && params["window"].is_number_integer();
  return known ? std::optional(params["window"].get<int64_t>()) : std::nullopt;
}

bool SettingResult::falls_back() const {
  return params.contains("rollback");
}

std::string Results::environment_text(const std::string& key) const {
  const ordered_json& value = value_of(environment, key);
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

double EngagementPoint::engaged_share() const {
  return tokens == 0 ? kUnknown : static_cast<double>(engaged) / static_cast<double>(tokens);
}

const SettingResult* TaskResult::find(const std::string& setting) const {
  for (const SettingResult* row : rows()) {
    if (row->name == setting) return row;
  }
  return nullptr;
}

std::vector<const SettingResult*> TaskResult::rows() const {
  std::vector<const SettingResult*> rows{&baseline};
  for (const SettingResult& setting : settings) rows.push_back(&setting);
  return rows;
}

ordered_json to_json(const Results& results) {
  ordered_json json{{"version", kVersion}};
  json.update(written(results));
  return json;
}

Results results_from_json(const ordered_json& json, const std::string& where) {
  const ordered_json& version = value_of(json, "version");
  if (version != kVersion) {  // numbers of other versions may mean something else
    throw UserError({.where = where,
                     .what = "is no results.json of this version",
                     .expected = fmt::format("version {}", kVersion),
                     .found = brief(version),
                     .hint = "evaluate again"});
  }
  ResultsReader reader;
  const auto refuse = [&](const std::string& found) {
    throw UserError({.where = where,
                     .what = fmt::format("is no results.json: wrong value of {}", fmt::join(reader.place, ".")),
                     .expected = "a value as evaluations write it",
                     .found = found,
                     .hint = "evaluate again"});
  };
  Results results;
  try {
    reader.read(json, results);
  } catch (const ordered_json::exception& error) {
    refuse(error.what());
  }
  for (const TaskResult& task : results.tasks) {
    for (const SettingResult* row : task.rows()) {
      reader.place = {"tasks", task.name, row->name, "params"};
      const auto is_text = [&](const char* key) {
        return value_of(row->params, key).is_string() || !row->params.contains(key);
      };
      if (!row->params.is_object() || !is_text("drafter") || !is_text("model")) refuse(brief(row->params));
    }
  }
  for (const EngagementResult& curve : results.engagement) {
    reader.place = {"engagement", curve.name};
    const auto is_scored = [&](const EngagementPoint& point) {
      return curve.large.scores.empty() || point.quality.find(curve.large.scores.front().name) != nullptr;
    };
    if (!std::ranges::all_of(curve.points, is_scored)) refuse("a point without the large model's first score");
  }
  return results;
}

Results load_results(const std::filesystem::path& file) {
  load_json(file);  // names the line of malformed JSON, but does not keep the order of keys
  return results_from_json(ordered_json::parse(read_file(file)), file.string());
}

void require_replaceable_results(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return;
  const ordered_json json = ordered_json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  const ordered_json& version = value_of(json, "version");
  if (version.is_null() || version == kVersion) return;
  throw UserError({.where = file.string(),
                   .what = "results of another version would be replaced",
                   .expected = fmt::format("version {}", kVersion),
                   .found = brief(version),
                   .hint = "name another directory for these results"});
}

}  // namespace draftsmith::evaluate
