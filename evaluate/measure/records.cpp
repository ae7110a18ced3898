#include "evaluate/measure/records.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

namespace draftsmith::evaluate {
namespace {

// Counts of DecodeStats that are kept on disk.
constexpr std::array kCounts{
    &infer::DecodeStats::emitted,       &infer::DecodeStats::target_runs,       &infer::DecodeStats::draft_runs,
    &infer::DecodeStats::verifications, &infer::DecodeStats::drafted,           &infer::DecodeStats::accepted,
    &infer::DecodeStats::fallbacks,     &infer::DecodeStats::rollbacks,         &infer::DecodeStats::cut,
    &infer::DecodeStats::overlap_count, &infer::DecodeStats::target_tokens,     &infer::DecodeStats::layer_runs,
    &infer::DecodeStats::latency_units, &infer::DecodeStats::early_predictions, &infer::DecodeStats::early_matches,
    &infer::DecodeStats::compute_units, &infer::DecodeStats::unverified};

nlohmann::json steps_json(const infer::StepCounts& counts) {
  return {counts.passes, counts.steps, counts.tokens, counts.logits, counts.keys, counts.pairs};
}

infer::StepCounts steps_of(const nlohmann::json& json) {
  return {.passes = json.at(0),
          .steps = json.at(1),
          .tokens = json.at(2),
          .logits = json.at(3),
          .keys = json.at(4),
          .pairs = json.at(5)};
}

nlohmann::json seconds_json(const infer::PhaseSeconds& seconds) {
  return {seconds.encode, seconds.prefill, seconds.draft, seconds.verify, seconds.other};
}

}  // namespace

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
  nlohmann::json counts;
  for (const auto count : kCounts) counts.push_back(stats.*count);
  nlohmann::json json{{"ids", ids},
                      {"first_tokens", first_tokens},
                      {"counts", counts},
                      {"prefill_runs", prefill_runs},
                      {"overlap", stats.overlap_sum},
                      {"histogram", stats.accepted_histogram},
                      {"examined", stats.examined_by_position},
                      {"accepted", stats.accepted_by_position},
                      {"exits", stats.exits_by_layer},
                      {"target_steps", steps_json(stats.target_steps)},
                      {"draft_steps", steps_json(stats.draft_steps)}};
  if (window) json["window"] = *window;
  if (failure) json["failure"] = *failure;
  return json;
}

LineRecord LineRecord::from_counts(const nlohmann::json& json) {
  LineRecord record;
  json.at("ids").get_to(record.ids);
  json.at("first_tokens").get_to(record.first_tokens);
  for (size_t i = 0; i < kCounts.size(); ++i) json.at("counts").at(i).get_to(record.stats.*kCounts[i]);
  json.at("prefill_runs").get_to(record.prefill_runs);
  json.at("overlap").get_to(record.stats.overlap_sum);
  json.at("histogram").get_to(record.stats.accepted_histogram);
  json.at("examined").get_to(record.stats.examined_by_position);
  json.at("accepted").get_to(record.stats.accepted_by_position);
  json.at("exits").get_to(record.stats.exits_by_layer);
  record.stats.target_steps = steps_of(json.at("target_steps"));
  record.stats.draft_steps = steps_of(json.at("draft_steps"));
  if (json.contains("window")) record.window = json.at("window").get<int64_t>();
  if (json.contains("failure")) record.failure = json.at("failure").get<std::string>();
  return record;
}

nlohmann::json LineRecord::times_json() const {
  nlohmann::json json{{"turn", turn}, {"seconds", nlohmann::json::array()}};
  for (const auto& repetition : repetitions) json["seconds"].push_back(seconds_json(repetition));
  if (!latencies.empty()) json["latencies"] = latencies;
  if (timed_again > 0) json["timed_again"] = timed_again;
  return json;
}

void LineRecord::set_times(const nlohmann::json& json) {
  json.at("turn").get_to(turn);
  timed_again = json.value("timed_again", int64_t{0});
  latencies = json.value("latencies", std::vector<double>());
  repetitions.clear();
  for (const auto& repetition : json.at("seconds")) {
    repetitions.push_back({.encode = repetition.at(0),
                           .prefill = repetition.at(1),
                           .draft = repetition.at(2),
                           .verify = repetition.at(3),
                           .other = repetition.at(4)});
  }
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

}  // namespace draftsmith::evaluate
