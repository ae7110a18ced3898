#include "evaluate/measure/measurement_store.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/logging.h"

namespace draftsmith::infer {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PhaseSeconds, encode, prefill, draft, verify, other)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepCounts, passes, steps, tokens, logits, keys, pairs, window_keys, window_pairs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DecodeStats, emitted, target_runs, target_tokens, draft_runs, verifications, drafted,
                                   accepted, unverified, fallbacks, rollbacks, cut, accepted_histogram,
                                   examined_by_position, accepted_by_position, layer_runs, exits_by_layer,
                                   early_predictions, early_matches, latency_units, compute_units, overlap_sum,
                                   overlap_count, target_steps, draft_steps)

}  // namespace draftsmith::infer

namespace draftsmith::evaluate {

size_t LineRecord::median_index() const {
  if (repetitions.empty()) throw std::logic_error("median of a line that was not timed");
  std::vector<size_t> order(repetitions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return repetitions[a].total() < repetitions[b].total(); });
  return order[(order.size() - 1) / 2];
}

double LineRecord::latency() const {
  const size_t middle = median_index();
  return middle < latencies.size() ? latencies[middle] : repetitions[middle].total();
}

nlohmann::json LineRecord::counts_json() const {
  nlohmann::json json{{"ids", ids}, {"first_tokens", first_tokens}, {"stats", stats}, {"prefill_runs", prefill_runs}};
  if (window) json["window"] = *window;
  if (failure) json["failure"] = *failure;
  return json;
}

LineRecord LineRecord::from_counts(const nlohmann::json& json) {
  LineRecord record;
  json.at("ids").get_to(record.ids);
  json.at("first_tokens").get_to(record.first_tokens);
  json.at("stats").get_to(record.stats);
  json.at("prefill_runs").get_to(record.prefill_runs);
  if (json.contains("window")) record.window = json.at("window").get<int64_t>();
  if (json.contains("failure")) record.failure = json.at("failure").get<std::string>();
  return record;
}

nlohmann::json LineRecord::times_json() const {
  return {{"turn", turn},
          {"repetitions", repetitions},
          {"baseline", baseline},
          {"latencies", latencies},
          {"timed_again", timed_again}};
}

void LineRecord::add_times(const nlohmann::json& json) {
  const auto append = [&](const char* key, auto& values) {
    const auto more = json.at(key).get<std::remove_cvref_t<decltype(values)>>();
    values.insert(values.end(), more.begin(), more.end());
  };
  json.at("turn").get_to(turn);
  append("repetitions", repetitions);
  append("baseline", baseline);
  append("latencies", latencies);
  timed_again += json.at("timed_again").get<int64_t>();
}

void add_overhead(SettingRecords& batch, double elapsed) {
  double known = 0;
  for (const LineRecord& line : batch) known += line.repetitions.back().total();
  const double share = batch.empty() ? 0 : std::max(elapsed - known, 0.0) / static_cast<double>(batch.size());
  for (LineRecord& line : batch) {
    line.repetitions.back().other += share;
    line.latencies.push_back(known + share * static_cast<double>(batch.size()));
  }
}

infer::DecodeStats sum_of_stats(const SettingRecords& run) {
  infer::DecodeStats total;
  for (const LineRecord& line : run) total += line.stats;
  return total;
}

namespace fs = std::filesystem;

MeasurementStore::MeasurementStore(const fs::path& directory, const std::string& key)
    : file_(directory / "measurements.jsonl"), lock_(file_, "--out"), header_(nlohmann::json{{"key", key}}.dump()) {
  const uintmax_t whole = read();
  resumed_ = std::ssize(measured_);
  std::error_code failed;
  if (whole > 0) fs::resize_file(file_, whole, failed);
  stream_.open(file_, whole > 0 ? std::ios::app : std::ios::trunc);
  if (whole == 0) stream_ << header_ << "\n" << std::flush;
  if (!stream_ || failed) refuse("the file of measurements cannot be written");
}

uintmax_t MeasurementStore::read() {
  std::ifstream input(file_);
  uintmax_t done = 0;
  std::string line;
  while (std::getline(input, line) && !input.eof()) {  // the last line of a killed evaluation may be cut off
    if (done == 0) {
      if (line != header_) {
        log_warning("{}: other options, models, processor or program: what was measured before is measured again",
                    file_.string());
        return done;
      }
    } else {
      nlohmann::json entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!entry.is_object() || !entry.contains("name") || !entry.contains("measured")) {
        log_warning("{}: a damaged measurement and what follows it is measured again", file_.string());
        return done;
      }
      measured_[entry["name"].get<Name>()] = std::move(entry["measured"]);
    }
    done += line.size() + 1;
  }
  return done;
}

void MeasurementStore::refuse(const std::string& what) const {
  throw RunError({.where = file_.string(), .what = what, .hint = "is the disk full?"});
}

const nlohmann::json* MeasurementStore::find(const Name& name) const {
  const auto found = measured_.find(name);
  return found == measured_.end() ? nullptr : &found->second;
}

void MeasurementStore::add(const Name& name, nlohmann::json measurement) {
  nlohmann::json& kept = measured_[name] = std::move(measurement);
  const nlohmann::json entry{{"name", name}, {"measured", kept}};
  stream_ << entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
  if (!stream_) refuse("a measurement could not be written");
}

void MeasurementStore::remove() {
  stream_.close();
  std::error_code ignored;
  fs::remove(file_, ignored);
}

}  // namespace draftsmith::evaluate
