#include "evaluate/suite/setting_grid.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace draftsmith::evaluate {
namespace {

nlohmann::ordered_json number(double value) {
  if (std::isinf(value)) return "inf";
  return value;
}

// Short names of parameters in labels.
std::string label_key(const std::string& key) {
  if (key == "temperature") return "T";
  if (key == "window") return "G";
  if (key == "fallback") return "FB";
  if (key == "rollback") return "RB";
  if (key == "num_samples") return "samples";
  if (key == "max_entropy") return "H";
  if (key == "threshold") return "tau";
  if (key == "exit_layer") return "exit";
  if (key == "exit_threshold") return "lambda";
  if (key == "exit_decay") return "temp";
  if (key == "early_layer") return "d";
  if (key == "candidates") return "k";
  return key;
}

std::string label_value(const nlohmann::ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

// "assisted.aligned.G5"; a name given by the user stands alone when it means one setting only.
std::string label_of(const std::string& name, const Setting& settings, bool with_parameters) {
  std::string label = name.empty() ? settings.method() : name;
  if (settings.model != "target") label += "." + settings.model;
  if (!settings.drafter.empty()) label += "." + settings.drafter;
  if (!with_parameters) return file_safe(label);
  const auto params = settings.params();
  for (const auto& [key, value] : params.items()) {
    if (key == "drafter" || key == "model" || key == "router" || key == "exits") continue;
    const bool text = value.is_string() && value != "inf";
    label += "." + (value == false ? "no_" + key : text ? label_value(value) : label_key(key) + label_value(value));
  }
  return file_safe(label);
}

// Drafters, exits that draft, models, rules, measures and ways of sampling are compared, not chosen among.
std::string group_of(const SettingGrid& run, const Setting& settings) {
  std::string group = label_of(run.name, settings, false);
  if (settings.decode.exit_layer) group += fmt::format(".exit{}", *settings.decode.exit_layer);
  if (settings.method() == "calm") group += "." + settings.decode.exit_measure;
  if (settings.method() == "ppd" && settings.decode.execution != "auto") group += "." + settings.decode.execution;
  if (run.name.empty() && !run.window_rule.empty()) group += "." + run.window_rule;
  if (run.name.empty() && !run.acceptance.empty()) group += "." + run.acceptance;
  if (settings.temperature() != 0) group += fmt::format(".T{}", settings.temperature());
  if (settings.decode.top_k.value_or(0) != 0) group += fmt::format(".top_k{}", *settings.decode.top_k);
  if (settings.decode.top_p.value_or(1) != 1) group += fmt::format(".top_p{}", *settings.decode.top_p);
  if (settings.decode.num_samples != 1) group += fmt::format(".samples{}", settings.decode.num_samples);
  return file_safe(group);
}

// One point for each value of the list; an empty list changes nothing.
template <typename Value, typename Set>
void spread(std::vector<Setting>& points, const std::vector<Value>& values, Set set) {
  if (values.empty()) return;
  std::vector<Setting> result;
  for (const auto& point : points) {
    for (const auto& value : values) set(result.emplace_back(point), value);
  }
  points = std::move(result);
}

Setting first_point(const SettingGrid& run) {
  Setting start;
  start.model = run.model;
  start.choose_on = run.choose_on;
  start.max_drop = run.max_drop;
  start.decode.method = run.method;
  if (!run.window_rule.empty()) start.decode.window_rule = run.window_rule;
  if (!run.acceptance.empty()) start.decode.acceptance = run.acceptance;
  start.decode.free_token = run.free_token;
  start.decode.router = run.router;
  start.decode.exits = run.exits;
  if (start.decode.samples_by_default()) {
    // A directory's own sampling settings would make runs of different models incomparable.
    start.decode.temperature = 1;
    start.decode.top_k = 0;
    start.decode.top_p = 1;
  }
  return start;
}

bool contains(const std::vector<Setting>& runs, const std::string& label) {
  return std::any_of(runs.begin(), runs.end(), [&](const auto& run) { return run.label == label; });
}

void add_missing(std::vector<Setting>& runs, const Setting& run) {
  if (!contains(runs, run.label)) runs.push_back(run);
}

bool same_setting(const Setting& a, const Setting& b) {
  return a.method() == b.method() && a.params() == b.params();
}

void add_sampling(const infer::DecodeOptions& decode, nlohmann::ordered_json& json) {
  if (decode.temperature) json["temperature"] = *decode.temperature;
  if (decode.top_k.value_or(0) != 0) json["top_k"] = *decode.top_k;
  if (decode.top_p.value_or(1) != 1) json["top_p"] = *decode.top_p;
}

// What calm and ppd decode with is always named, what early-exit drafts with where it is given.
void add_inside(const infer::DecodeOptions& decode, nlohmann::ordered_json& json) {
  if (!decode.exits.empty()) json["exits"] = decode.exits.string();
  if (decode.exit_layer) json["exit_layer"] = *decode.exit_layer;
  if (decode.method == "calm") {
    json["exit_measure"] = decode.exit_measure;
    json["exit_threshold"] = decode.exit_threshold;
    json["exit_decay"] = decode.exit_decay;
  }
  if (decode.method != "ppd") return;
  if (decode.early_layer) json["early_layer"] = *decode.early_layer;
  json["candidates"] = decode.candidates;
  if (decode.execution != "auto") json["execution"] = decode.execution;
}

}  // namespace

std::string file_safe(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
        return !plain;
      },
      '_');
  return text;
}

bool Setting::lossless() const {
  const std::string acceptance = decode.acceptance_name();
  return temperature() == 0 && (acceptance == "exact" || acceptance == "rejection" || method() == "ppd");
}

std::string Setting::drafter_label() const {
  if (!decode.drafts()) return "";
  std::string name = drafter;
  if (decode.drafts_inside()) name = "exit" + (decode.exit_layer ? std::to_string(*decode.exit_layer) : "");
  if (!decode.exits.empty()) name += " [" + decode.exits.string() + "]";
  return model == "target" ? name : model + "/" + name;
}

nlohmann::ordered_json Setting::params() const {
  static const infer::DecodeOptions kDefaults;
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  if (model != "target") result["model"] = model;
  if (!drafter.empty()) result["drafter"] = drafter;
  add_sampling(decode, result);
  if (decode.window) result["window"] = *decode.window;
  if (decode.schedule != kDefaults.schedule) result["schedule"] = decode.schedule;
  if (decode.confidence) result["confidence"] = *decode.confidence;
  if (decode.window_rule_name() == "fallback") result["fallback"] = number(decode.fallback);
  if (decode.acceptance_name() == "rollback") result["rollback"] = number(decode.rollback);
  if (decode.max_draft && (decode.window_rule_name() == "router" || decode.max_draft != kDefaults.longest_draft())) {
    result["max_draft"] = *decode.max_draft;
  }
  if (decode.window_rule_name() == "entropy") result["max_entropy"] = number(decode.max_entropy);
  if (!decode.router.empty()) result["router"] = decode.router.string();
  if (decode.threshold) result["threshold"] = *decode.threshold;
  if (decode.rollback_rule != kDefaults.rollback_rule) result["rollback_rule"] = decode.rollback_rule;
  if (decode.window_rule) result["window_rule"] = *decode.window_rule;
  if (decode.acceptance) result["acceptance"] = *decode.acceptance;
  if (decode.free_token != kDefaults.free_token) result["free_token"] = decode.free_token;
  add_inside(decode, result);
  if (decode.num_samples != kDefaults.num_samples) result["num_samples"] = decode.num_samples;
  return result;
}

Setting greedy_baseline() {
  Setting run;
  run.label = "greedy";
  run.group = "greedy";
  return run;
}

Setting baseline_of(const Setting& run) {
  Setting baseline = greedy_baseline();
  baseline.decode.num_samples = run.decode.num_samples;
  if (run.temperature() == 0) {
    if (run.decode.num_samples > 1) baseline.group = baseline.label = label_of("", baseline, true);
    return baseline;
  }
  baseline.decode.method = "sample";
  baseline.decode.temperature = run.decode.temperature;
  baseline.decode.top_k = run.decode.top_k;
  baseline.decode.top_p = run.decode.top_p;
  baseline.label = label_of("", baseline, true);
  baseline.group = baseline.label;
  return baseline;
}

Setting greedy_of(const Setting& run) {
  Setting greedy = greedy_baseline();
  greedy.model = run.model;
  if (run.model != "target") greedy.group = greedy.label = label_of("", greedy, true);
  return greedy;
}

std::vector<Setting> expand_run(const SettingGrid& run) {
  std::vector<Setting> points{first_point(run)};
  spread(points, run.drafter, [](Setting& point, const std::string& value) { point.drafter = value; });
  spread(points, run.temperature, [](Setting& point, double value) { point.decode.temperature = value; });
  spread(points, run.top_k, [](Setting& point, int64_t value) { point.decode.top_k = value; });
  spread(points, run.top_p, [](Setting& point, double value) { point.decode.top_p = value; });
  spread(points, run.num_samples, [](Setting& point, int64_t value) { point.decode.num_samples = value; });
  spread(points, run.window, [](Setting& point, int64_t value) { point.decode.window = value; });
  spread(points, run.schedule, [](Setting& point, const std::string& value) { point.decode.schedule = value; });
  spread(points, run.confidence, [](Setting& point, double value) { point.decode.confidence = value; });
  spread(points, run.fallback, [](Setting& point, double value) { point.decode.fallback = value; });
  spread(points, run.rollback, [](Setting& point, double value) { point.decode.rollback = value; });
  spread(points, run.max_draft, [](Setting& point, int64_t value) { point.decode.max_draft = value; });
  spread(points, run.max_entropy, [](Setting& point, double value) { point.decode.max_entropy = value; });
  spread(points, run.threshold, [](Setting& point, double value) { point.decode.threshold = value; });
  spread(points, run.rollback_rule,
         [](Setting& point, const std::string& value) { point.decode.rollback_rule = value; });
  spread(points, run.exit_layer, [](Setting& point, int64_t value) { point.decode.exit_layer = value; });
  spread(points, run.exit_measure, [](Setting& point, const std::string& value) { point.decode.exit_measure = value; });
  spread(points, run.exit_threshold, [](Setting& point, double value) { point.decode.exit_threshold = value; });
  spread(points, run.exit_decay, [](Setting& point, double value) { point.decode.exit_decay = value; });
  spread(points, run.early_layer, [](Setting& point, int64_t value) { point.decode.early_layer = value; });
  spread(points, run.candidates, [](Setting& point, int64_t value) { point.decode.candidates = value; });
  spread(points, run.execution, [](Setting& point, const std::string& value) { point.decode.execution = value; });
  for (auto& point : points) {
    const bool name_is_enough = !run.name.empty() && points.size() == 1;
    point.label = name_is_enough ? file_safe(run.name) : label_of(run.name, point, true);
    point.group = group_of(run, point);
  }
  return points;
}

bool compares_with_own_greedy(const Setting& run) {
  return (run.temperature() == 0 || run.model != "target") && (run.decode.drafts() || run.inside());
}

std::string chosen_label(const std::string& group, double max_drop) {
  return group + ".drop" + label_value(max_drop);
}

std::vector<Setting> expand_runs(const SuiteOptions& options) {
  std::vector<Setting> runs{greedy_baseline()};
  for (const SettingGrid& given : options.run) {
    for (Setting& run : expand_run(given)) {
      const Setting baseline = baseline_of(run);
      const Setting own = greedy_of(run);
      add_missing(runs, baseline);
      if (compares_with_own_greedy(run)) add_missing(runs, own);
      if (same_setting(run, baseline)) continue;  // asked for by name
      if (same_setting(run, own) && contains(runs, run.label)) continue;
      if (contains(runs, run.label)) {
        throw UserError({.where = "run",
                         .what = "two runs of the suite have the same name",
                         .expected = "different names or parameters",
                         .found = run.label,
                         .hint = "give one of them another 'name'"});
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace draftsmith::evaluate
