#include "evaluate/tuning/rung.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/statistics.h"
#include "evaluate/evaluation.h"
#include "evaluate/report/section.h"
#include "evaluate/results/lines_file.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeyFile = "rung.json";

// Returns a suite of the settings alone on the first lines of the task, without what choosing does not need.
SuiteOptions suite_of(const RungRequest& request) {
  SuiteOptions suite = request.suite;
  suite.match_rates.clear();
  suite.engagement.clear();
  suite.tune_router = false;
  suite.calibrate = false;
  suite.forced_lines = 0;
  std::erase_if(suite.task, [&](const TaskOptions& task) { return task.name != request.task; });
  suite.task.front().limit = request.lines;
  suite.run.clear();
  for (const Setting& setting : request.settings) {
    SettingGrid& run = suite.run.emplace_back();
    run.name = setting.label;
    run.model = setting.model;
    if (!setting.drafter.empty()) run.drafter = {setting.drafter};
    run.decode = setting.decode;
  }
  return suite;
}

double sentence_p95(const SettingRecords& records) {
  std::vector<double> seconds;
  for (const LineRecord& record : records) {
    if (!record.repetitions.empty()) seconds.push_back(record.median().total());
  }
  return seconds.empty() ? 0 : quantile(std::move(seconds), 0.95);
}

RungResult read_rung(const fs::path& directory, const std::vector<Setting>& settings) {
  const Results results = load_results(directory / "results.json");
  const Lines lines = load_lines(directory / "lines.jsonl");
  const TaskResult& task = results.tasks.front();
  const ScoreStyle style = score_style(task);
  RungResult rung;
  for (const SettingFailure& failure : task.failures) {
    rung.notes.push_back(fmt::format("{} failed during {}: {}", failure.setting, failure.during, failure.message));
  }
  for (const Setting& setting : settings) {
    const SettingResult* row = task.find(setting.label);
    if (row == nullptr) continue;
    if (row->failed_lines || !row->lossless_check.value_or(true)) {
      rung.notes.push_back(fmt::format("{} is left out: it failed its checks", setting.label));
      continue;
    }
    RungSetting& one = rung.settings[setting.label];
    one.tokens_per_second = row->speed.tokens_per_second;
    one.speedup = row->speed.speedup.value;
    one.p95 = sentence_p95(lines.at({task.name, setting.label}).records);
    if (!row->quality.difference) continue;
    const QualityDifference& difference = *row->quality.difference;
    one.drop = style.loss(0, difference.value) / style.point;
    one.least_drop =
        std::min(style.loss(0, difference.interval.low), style.loss(0, difference.interval.high)) / style.point;
  }
  return rung;
}

}  // namespace

std::string rung_key(const RungRequest& request, const Engine& engine) {
  const SuiteOptions suite = suite_of(request);
  Sha256 hash;
  hash.update(options_to_json(suite).dump() + engine.fingerprint());
  for (const Setting& setting : request.settings)
    hash.update(setting.label + setting.method() + setting.params().dump());
  const TaskData data = load_task(suite.task.front());
  hash.update(nlohmann::json{data.sources, data.references}.dump());
  return hash.hex_digest();
}

RungResult measure_rung(const RungRequest& request, const fs::path& directory, Engine& engine,
                        const SuiteContext& context) {
  const std::string key = rung_key(request, engine);
  const fs::path key_file = directory / kKeyFile;
  const bool before = fs::exists(key_file) && load_json(key_file) == nlohmann::json{{"key", key}};
  if (!before) {
    run_evaluation(suite_of(request), directory, engine, context);
    write_json(key_file, {{"key", key}});
  }
  RungResult rung = read_rung(directory, request.settings);
  rung.measured_before = before;
  return rung;
}

}  // namespace draftsmith::evaluate
