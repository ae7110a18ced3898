#include "evaluate/suite/setting_grid.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include "base/files.h"
#include "infer/acceptance/acceptance_rules.h"
#include "infer/windows/window_rules.h"
#include "model/models/router.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

const std::vector<Field>& decode_fields() {
  return OptionLists<DecodeOptions>::fields().all();
}

// Returns whether results and labels name the field: a key of grids that differs from its default, or that is always
// named and read. The method is not among them, since labels begin with it.
bool is_named(const Field& field, const DecodeOptions& decode) {
  static const DecodeOptions kDefaults;
  if (field.grid == GridKey::kNone || field.name == "method") return false;
  if (field.unnamed_if && field.unnamed_if(&decode)) return false;
  return field.always_named ? decode.reads(field) : field_json(field, &decode) != field_json(field, &kDefaults);
}

std::string label_value(const ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

// Returns a field's part of a label: "FB0.5", "constant", "verify_end", "no_free_token". Empty for fields that labels
// leave out.
std::string label_part(const Field& field, const ordered_json& value) {
  const std::string key = field.label.value_or(field.name);
  if (key.empty()) return "";
  if (value.is_boolean()) return value == true ? key : "no_" + key;
  if (value.is_array()) return key + "_" + sha256(value.dump()).substr(0, 8);  // texts hold what labels cannot
  const bool text = value.is_string() && value != "inf";
  return text ? label_value(value) : key + label_value(value);
}

std::string label_of(const std::string& name, const Setting& setting) {
  std::string label = name.empty() ? setting.method() : name;
  if (!setting.decodes_target()) label += "." + setting.model;
  if (!setting.drafter.empty()) label += "." + setting.drafter;
  return label;
}

// Returns the label with the named parameters that `keep` takes: "assisted.aligned.G5".
std::string label_with_parameters(
    const std::string& name, const Setting& setting,
    const std::function<bool(const Field&)>& keep = [](const Field&) { return true; }) {
  std::string label = label_of(name, setting);
  for (const Field& field : decode_fields()) {
    if (!is_named(field, setting.decode) || !keep(field)) continue;
    const std::string part = label_part(field, field_json(field, &setting.decode));
    if (!part.empty()) label += "." + part;
  }
  return file_safe(label);
}

// Returns the label without the parameters that are chosen. Compared are drafters, exits that draft, models, measures,
// what baselines have too (outer loops), and rules, unless the grid has a name.
std::string group_of(const std::string& name, const Setting& setting) {
  return label_with_parameters(name, setting, [&](const Field& field) {
    const bool rule = field.name == "window_rule" || field.name == "acceptance";
    return field.outer_loop || field.name == "exit_layer" || field.name == "exit_measure" ||
           field.name == "verify_end" || (rule && name.empty());
  });
}

// Takes each of temperature, top_k, top_p and min_p that `decode` lacks from `from`.
void take_sampling(const DecodeOptions& from, DecodeOptions& decode) {
  if (!decode.temperature) decode.temperature = from.temperature;
  if (!decode.top_k) decode.top_k = from.top_k;
  if (!decode.top_p) decode.top_p = from.top_p;
  if (!decode.min_p) decode.min_p = from.min_p;
}

// Takes what changes the decoding of every method alike: processors and stop strings.
void take_processors(const DecodeOptions& from, DecodeOptions& decode) {
  decode.repetition_penalty = from.repetition_penalty;
  decode.no_repeat_ngram_size = from.no_repeat_ngram_size;
  decode.min_new_tokens = from.min_new_tokens;
  decode.stop_strings = from.stop_strings;
}

// Returns the options with defaults of sampling. A model's own settings would make models incomparable.
DecodeOptions with_defaults(DecodeOptions decode) {
  if (!decode.samples_by_default() && decode.temperature.value_or(0) == 0) return decode;
  DecodeOptions plain;
  plain.temperature = 1;
  plain.top_k = 0;
  plain.top_p = 1;
  plain.min_p = 0;
  take_sampling(plain, decode);
  return decode;
}

bool contains(const std::vector<Setting>& settings, const std::string& label) {
  return std::any_of(settings.begin(), settings.end(), [&](const auto& one) { return one.label == label; });
}

void add_missing(std::vector<Setting>& settings, const Setting& setting) {
  if (!contains(settings, setting.label)) settings.push_back(setting);
}

bool same_setting(const Setting& a, const Setting& b) {
  return a.method() == b.method() && a.params() == b.params();
}

// Adds a setting and its baselines. A setting that is one of its baselines adds nothing.
void add_setting(std::vector<Setting>& settings, const Setting& setting) {
  const Setting baseline = baseline_of(setting);
  const Setting own = greedy_of(setting);
  add_missing(settings, baseline);
  if (compares_with_own_greedy(setting)) add_missing(settings, own);
  if (same_setting(setting, baseline)) return;
  if (same_setting(setting, own) && contains(settings, setting.label)) return;
  if (contains(settings, setting.label)) {
    throw UserError({.where = "run",
                     .what = "two settings of the suite have the same name",
                     .expected = "different names or parameters",
                     .found = setting.label,
                     .hint = "give one of the [[run]] tables another 'name'"});
  }
  settings.push_back(setting);
}

// Returns whether the setting is one that others are compared with.
bool is_baseline(const Setting& setting) {
  return setting.decode.method_info().is_baseline() && setting.decodes_target() &&
         setting.label == baseline_of(setting).label;
}

}  // namespace

std::string file_safe(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_') c = '_';
  }
  return text;
}

bool Setting::lossless() const {
  const infer::Method& info = decode.method_info();
  if (temperature() != 0 || info.is_baseline()) return false;
  return decode.drafts() ? infer::acceptance_traits(decode).lossless : info.lossless;
}

bool Setting::samples_exactly() const {
  if (temperature() == 0) return false;
  const infer::Method& info = decode.method_info();
  return decode.drafts() ? infer::acceptance_traits(decode).lossless : info.lossless;
}

bool Setting::follows_target() const {
  Setting greedy = *this;
  greedy.decode.temperature = 0;
  return greedy.lossless() && decodes_target();
}

std::string Setting::drafter_label() const {
  if (!decode.drafts()) return "";
  std::string name = drafter;
  if (decode.drafts_inside()) name = "exit" + (decode.exit_layer ? std::to_string(*decode.exit_layer) : "");
  if (!decode.exits.empty()) name += " [" + decode.exits.string() + "]";
  return decodes_target() ? name : model + "/" + name;
}

ordered_json Setting::params() const {
  ordered_json result = ordered_json::object();
  if (!decodes_target()) result["model"] = model;
  if (!drafter.empty()) result["drafter"] = drafter;
  for (const Field& field : decode_fields()) {
    if (is_named(field, decode)) result[field.name] = field_json(field, &decode);
  }
  return result;
}

Setting greedy_baseline() {
  Setting greedy;
  greedy.label = kGreedyLabel;
  greedy.group = kGreedyLabel;
  return greedy;
}

Setting baseline_of(const Setting& setting) {
  Setting baseline = greedy_baseline();
  baseline.decode.method = infer::baseline_method(setting.temperature()).name;
  baseline.decode.num_samples = setting.decode.num_samples;
  baseline.decode.batch_size = setting.decode.batch_size;
  if (setting.temperature() != 0) take_sampling(setting.decode, baseline.decode);
  take_processors(setting.decode, baseline.decode);
  baseline.group = baseline.label = label_with_parameters("", baseline);
  return baseline;
}

Setting greedy_of(const Setting& setting) {
  Setting greedy = greedy_baseline();
  greedy.model = setting.model;
  if (compares_with_own_greedy(setting)) take_processors(setting.decode, greedy.decode);
  greedy.decode.batch_size = setting.decode.batch_size;
  greedy.group = greedy.label = label_with_parameters("", greedy);
  return greedy;
}

Setting sampling_of(const Setting& setting) {
  Setting sampling;
  sampling.model = setting.model;
  sampling.decode.method = infer::baseline_method(1).name;
  sampling.decode = with_defaults(sampling.decode);
  sampling.label = "alpha_forced, samples of " + setting.model;  // blanks: file_safe() gives no such label
  return sampling;
}

bool compares_with_own_greedy(const Setting& setting) {
  return (setting.temperature() == 0 || !setting.decodes_target()) && (setting.decode.drafts() || setting.inside());
}

std::vector<Setting> expand_grid(const SettingGrid& grid, int64_t batch_size) {
  const std::vector<DecodeOptions> points = grid.lists.combinations(grid.decode);
  const std::vector<std::string> none{""};
  std::vector<Setting> settings;
  for (const std::string& drafter : grid.drafter.empty() ? none : grid.drafter) {
    for (const DecodeOptions& point : points) {
      Setting& setting = settings.emplace_back();
      setting.model = grid.model;
      setting.drafter = drafter;
      setting.decode = with_defaults(point);
      if (point.batch_size == batch_size) setting.decode.batch_size.reset();
      setting.choose_on = grid.choose_on;
      setting.max_drop = grid.max_drop;
    }
  }
  for (Setting& setting : settings) {
    const bool name_is_enough = !grid.name.empty() && settings.size() == 1;
    setting.label = name_is_enough ? file_safe(grid.name) : label_with_parameters(grid.name, setting);
    setting.group = group_of(grid.name, setting);
  }
  return settings;
}

std::vector<Setting> expand_settings(const SuiteOptions& options) {
  std::vector<Setting> all{greedy_baseline()};
  for (const SettingGrid& grid : options.run) {
    for (const Setting& setting : expand_grid(grid, options.batch_size)) add_setting(all, setting);
  }
  return all;
}

std::vector<Setting> with_repeated_baselines(const std::vector<Setting>& settings) {
  std::map<std::string, int> baselines;  // by method
  for (const Setting& setting : settings) {
    if (is_baseline(setting)) ++baselines[setting.method()];
  }
  std::vector<Setting> all;
  for (const Setting& setting : settings) {
    all.push_back(setting);
    if (!is_baseline(setting)) continue;
    Setting& again = all.emplace_back(setting);
    again.repeats = setting.label;
    again.label = again.group = "A/A " + (baselines[setting.method()] > 1 ? setting.label : setting.method());
  }
  return all;
}

std::string chosen_label(const std::string& group, double max_drop) {
  return group + ".drop" + label_value(max_drop);
}

SuiteOptions with_router_defaults(const SuiteOptions& options) {
  SuiteOptions suite = options;
  for (SettingGrid& run : suite.run) {
    auto& thresholds = run.lists[&DecodeOptions::threshold];
    auto& longest = run.lists[&DecodeOptions::max_draft];
    const bool asks_router = run.decode.drafts() && run.decode.window_rule_name() == infer::RouterWindow::kind().name;
    if (!asks_router || (!thresholds.empty() && !longest.empty())) continue;
    if (run.decode.router.empty() || !model::is_router(run.decode.router)) continue;
    const model::RouterConfig config = model::load_router(run.decode.router).config();
    if (thresholds.empty()) thresholds = {config.threshold};
    if (longest.empty()) longest = {config.max_draft};
  }
  return suite;
}

}  // namespace draftsmith::evaluate
