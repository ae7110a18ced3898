#include "evaluate/measure/counting_pass.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/sha256.h"
#include "infer/parts.h"

namespace draftsmith::evaluate {
namespace {

std::string name_of(const MatchPrompts& table, const std::string& decoding) {
  return measurement_name({"match rates", table.key, options_hash(table.rates), decoding});
}

nlohmann::json to_json(const std::vector<infer::MatchRate>& cells) {
  nlohmann::json json = nlohmann::json::array();
  for (const infer::MatchRate& cell : cells) {
    json.push_back({cell.decoding, cell.layer, cell.k, cell.trained, cell.positions, cell.matches, cell.tokens});
  }
  return json;
}

infer::MatchRate cell_of(const nlohmann::json& json) {
  return {.decoding = json.at(0),
          .layer = json.at(1),
          .k = json.at(2),
          .trained = json.at(3),
          .positions = json.at(4),
          .matches = json.at(5),
          .tokens = json.at(6)};
}

}  // namespace

std::vector<MatchRateResult> measure_match_rates(const std::vector<MatchPrompts>& tables, Engine& engine,
                                                 MeasurementStore& store, const SuiteContext& context) {
  std::vector<Measurement> measurements;
  for (size_t i = 0; i < tables.size(); ++i) {
    for (const infer::MatchDecoding& decoding : tables[i].rates.options().decodings) {
      const auto count = [&, i, name = decoding.name] {
        MatchRateTable one = tables[i].rates;
        one.decoding = {name};
        return to_json(engine.match_rates(one, tables[i].prompts, tables[i].max_new_tokens));
      };
      measurements.push_back({.name = name_of(tables[i], decoding.name), .measure = count});
    }
  }
  measure_missing(measurements, store, context);
  std::vector<MatchRateResult> results;
  for (const MatchPrompts& table : tables) {
    MatchRateResult& result = results.emplace_back(MatchRateResult{.name = table.rates.name,
                                                                   .task = table.task,
                                                                   .model = table.rates.model,
                                                                   .prompts = std::ssize(table.prompts),
                                                                   .cells = {}});
    for (const infer::MatchDecoding& decoding : table.rates.options().decodings) {
      for (const auto& cell : store.at(name_of(table, decoding.name))) result.cells.push_back(cell_of(cell));
    }
  }
  return results;
}

namespace {

std::string name_of(const MeasureTask& task, const Setting& setting, int64_t first_line) {
  return measurement_name({"counts", task.key, measured_name(setting), std::to_string(first_line)});
}

// Returns Measurement::owner of a setting's counts.
std::string owner_of(const MeasureTask& task, const Setting& setting) {
  return setting.is_greedy_baseline() ? "" : fmt::format("{} on {}", setting.label, task.name);
}

// Returns whether a setting's windows go on from batch to batch, so that its batches must be counted in order.
bool carries(const Setting& setting) {
  return setting.decode.drafts() && infer::window_traits(setting.decode).carries;
}

SettingRecords records_of(const nlohmann::json& json) {
  SettingRecords records;
  for (const auto& record : json) records.push_back(LineRecord::from_counts(record));
  return records;
}

nlohmann::json to_json(const SettingRecords& records) {
  nlohmann::json json = nlohmann::json::array();
  for (const LineRecord& record : records) json.push_back(record.counts_json());
  return json;
}

// Counting pass of one setting.
struct SettingPass {
  const MeasureTask& task;
  const Setting& setting;
  Engine& engine;
  const MeasurementStore& store;

  int64_t size() const { return task.batch_size_of(setting); }

  nlohmann::json count(int64_t first_line) const {
    DecodeBatch batch{task.batch(setting, first_line), first_line, task.max_new_tokens, true};
    if (carries(setting) && first_line > 0) {
      batch.window = records_of(store.at(name_of(task, setting, first_line - size()))).back().window;
    }
    return to_json(engine.decode(setting, batch));
  }

  void add_to(std::vector<Measurement>& measurements) const {
    for (int64_t first = 0; first < task.lines(); first += size()) {
      measurements.push_back({.name = name_of(task, setting, first),
                              .size = std::ssize(task.batch(setting, first)),
                              .measure = [*this, first] { return count(first); },
                              .owner = owner_of(task, setting)});
    }
  }
};

}  // namespace

std::string measured_name(const Setting& setting) {
  return setting.label + " " + sha256(setting.method() + setting.params().dump()).substr(0, 8);
}

std::span<const Prompt> MeasureTask::batch(const Setting& setting, int64_t first_line) const {
  const int64_t rows = std::min(batch_size_of(setting), lines() - first_line);
  return {prompts.data() + first_line, static_cast<size_t>(rows)};
}

int64_t MeasureTask::common_batch() const {
  int64_t common = 1;
  for (const Setting& setting : settings) common = std::lcm(common, batch_size_of(setting));
  return common;
}

std::vector<Measurement> counting_pass(const MeasureTask& task, Engine& engine, const MeasurementStore& store) {
  std::vector<Measurement> measurements;
  for (const Setting& setting : task.settings) SettingPass{task, setting, engine, store}.add_to(measurements);
  return measurements;
}

TaskRecords counted_records(const MeasureTask& task, const MeasurementStore& store) {
  TaskRecords records;
  const auto failed = failed_countings(task, store);
  for (const Setting& setting : task.settings) {
    if (failed.contains(setting.label)) continue;
    SettingRecords& all = records[setting.label];
    for (int64_t first = 0; first < task.lines(); first += task.batch_size_of(setting)) {
      const SettingRecords batch = records_of(store.at(name_of(task, setting, first)));
      all.insert(all.end(), batch.begin(), batch.end());
    }
  }
  return records;
}

std::map<std::string, std::string> failed_countings(const MeasureTask& task, const MeasurementStore& store) {
  std::map<std::string, std::string> failed;
  for (const Setting& setting : task.settings) {
    const std::string owner = owner_of(task, setting);
    if (owner.empty()) continue;
    if (const auto message = store.failure(owner)) failed[setting.label] = *message;
  }
  return failed;
}

std::optional<int64_t> first_window(const Setting& setting, const SettingRecords& records, int64_t first_line) {
  if (!carries(setting) || first_line == 0) return std::nullopt;
  return records.at(static_cast<size_t>(first_line - 1)).window;
}

}  // namespace draftsmith::evaluate
