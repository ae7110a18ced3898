#include "evaluate/tuning/forecast.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "evaluate/measure/failures.h"
#include "evaluate/measure/typical_lines.h"
#include "evaluate/suite/tasks.h"
#include "evaluate/theory/formulas.h"
#include "infer/parts.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForecastFile = "theory.json";
constexpr int64_t kLongestMeasured = 8;  // window whose rounds are measured: their cost grows with its square

// Returns the times with target steps of up to `tokens` tokens; longer ones than were measured lie on the straight line
// through the first and the last one.
infer::StepCosts extended(infer::StepCosts costs, int64_t tokens) {
  const auto measured = std::ssize(costs.target);
  if (measured < 2) return costs;
  const double last = costs.target.back();
  const double slope = std::max(last - costs.target.front(), 0.0) / static_cast<double>(measured - 1);
  for (int64_t more = 1; more <= tokens - measured; ++more) {
    costs.target.push_back(last + slope * static_cast<double>(more));
  }
  return costs;
}

// Lines that a model decoded under one sampling.
struct DecodedLines {
  std::vector<Prompt> prompts;
  std::vector<std::vector<int64_t>> outputs;
  SettingRecords records;
};

class Forecaster {
 public:
  Forecaster(const RungRequest& request, Engine& engine) : engine_(engine) {
    task_ = *std::ranges::find(request.suite.task, request.task, &TaskOptions::name);
    task_.limit = request.lines;
    max_new_tokens_ = task_.max_new_tokens > 0 ? task_.max_new_tokens : request.suite.max_new_tokens;
    for (const Setting& setting : request.settings) {
      if (!is_predictable(setting, request.suite.batch_size)) continue;
      settings_.push_back(&setting);
      longest_ = std::max(longest_, setting.decode.fixed_window());
    }
  }

  Forecast run() {
    Forecast speedups;
    for (const Setting* setting : settings_) {
      const std::string drafting = setting->drafter_label() + " " + baseline_of(*setting).label;
      if (failed_.contains(drafting)) continue;
      const auto message = failure_of([&] {
        const double alpha = alpha_of(*setting, drafting);
        speedups[setting->label] = walltime_improvement(alpha, setting->decode.fixed_window(), costs_of(*setting));
      });
      if (!message) continue;
      log_warning("theory predicts nothing of drafter {}: {}", setting->drafter_label(), *message);
      failed_.insert(drafting);
    }
    std::erase_if(speedups, [](const auto& one) { return !std::isfinite(one.second); });
    return speedups;
  }

 private:
  const std::vector<Prompt>& prompts() {
    if (!prompts_.empty()) return prompts_;
    std::vector<Prompt> read;
    bool cut = false;
    for (const std::string& source : load_task(task_).sources) read.push_back(engine_.encode(source, task_, cut));
    return prompts_ = std::move(read);
  }

  // Returns what the setting's baseline decodes. Leaves out lines that end at once or fail.
  const DecodedLines& decoded_by(const Setting& baseline) {
    if (const auto found = decoded_.find(baseline.label); found != decoded_.end()) return found->second;
    DecodedLines lines;
    std::vector<LineRecord> records = engine_.decode(baseline, {prompts(), 0, max_new_tokens_, false});
    for (size_t i = 0; i < records.size(); ++i) {
      if (records[i].failure || records[i].ids.empty()) continue;
      lines.prompts.push_back(prompts()[i]);
      lines.outputs.push_back(records[i].ids);
      lines.records.push_back(std::move(records[i]));
    }
    if (lines.outputs.empty()) throw RunError({.what = "all outputs are empty"});
    return decoded_[baseline.label] = std::move(lines);
  }

  double alpha_of(const Setting& setting, const std::string& drafting) {
    if (const auto found = alphas_.find(drafting); found != alphas_.end()) return found->second;
    const DecodedLines& lines = decoded_by(baseline_of(setting));
    const ForcedAlphas alphas = engine_.forced_alpha(setting, lines.prompts, lines.outputs);
    const double alpha = setting.temperature() == 0 ? alphas.at_temperature_0 : alphas.at_temperature_1;
    return alphas_[drafting] = std::clamp(alpha, 0.0, 1.0);
  }

  const infer::StepCosts& costs_of(const Setting& setting) {
    const std::string drafter = setting.drafter_label();
    if (const auto found = costs_.find(drafter); found != costs_.end()) return found->second;
    const DecodedLines& lines = decoded_by(baseline_of(setting));
    std::vector<infer::StepCosts> measured;
    for (const size_t line : typical_lines(lines.records)) {
      measured.push_back(engine_.step_costs(setting, lines.prompts[line], lines.outputs[line],
                                            std::min(longest_, kLongestMeasured) + 1));
    }
    return costs_[drafter] = extended(median_costs(measured), longest_ + 1);
  }

  Engine& engine_;
  TaskOptions task_;
  int64_t max_new_tokens_ = 0;
  std::vector<const Setting*> settings_;
  int64_t longest_ = 1;  // window
  std::vector<Prompt> prompts_;
  std::map<std::string, DecodedLines> decoded_;    // by the baseline's label
  std::map<std::string, double> alphas_;           // by drafter and baseline
  std::set<std::string> failed_;                   // likewise
  std::map<std::string, infer::StepCosts> costs_;  // by drafter
};

// Returns the predictions of an earlier run with the same key; nothing if there are none.
std::optional<Forecast> kept_forecast(const fs::path& file, const std::string& key) {
  if (!fs::exists(file)) return std::nullopt;
  try {
    const nlohmann::json kept = load_json(file);
    if (kept.at("key") == key) return kept.at("speedups").get<Forecast>();
  } catch (const nlohmann::json::exception&) {
    log_warning("{} is not what a search writes, and is written again", file.string());
  }
  return std::nullopt;
}

}  // namespace

bool is_predictable(const Setting& setting, int64_t batch_size) {
  const infer::DecodeOptions& decode = setting.decode;
  if (!decode.drafts() || !setting.follows_target() || !infer::window_traits(decode).constant_length) return false;
  if (decode.batch_size.value_or(batch_size) != 1 || decode.num_samples != 1) return false;
  const bool whole = decode.top_k.value_or(0) == 0 && decode.top_p.value_or(1) == 1 && decode.min_p.value_or(0) == 0;
  return setting.temperature() == 0 || (setting.temperature() == 1 && whole);
}

Forecast forecast(const RungRequest& request, const fs::path& directory, Engine& engine) {
  const std::string key = rung_key(request, engine);
  const fs::path file = directory / kForecastFile;
  if (const auto kept = kept_forecast(file, key)) return *kept;
  const Forecast speedups = Forecaster(request, engine).run();
  make_directories(directory);
  write_json(file, {{"key", key}, {"speedups", speedups}});
  return speedups;
}

}  // namespace draftsmith::evaluate
