#include "evaluate/measure/records.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

namespace draftsmith::evaluate {
namespace {

// Columns of the statistics of a timed line, from whose sums every speed ratio follows.
enum TimeColumn : size_t { kRatio, kLines, kBase, kRun, kBaseDecode, kBaseTokens, kRunDecode, kRunTokens, kColumns };

// Counts of DecodeStats that are kept on disk.
constexpr std::array kCounts{
    &infer::DecodeStats::emitted,       &infer::DecodeStats::target_runs,       &infer::DecodeStats::draft_runs,
    &infer::DecodeStats::verifications, &infer::DecodeStats::drafted,           &infer::DecodeStats::accepted,
    &infer::DecodeStats::fallbacks,     &infer::DecodeStats::rollbacks,         &infer::DecodeStats::cut,
    &infer::DecodeStats::overlap_count, &infer::DecodeStats::target_tokens,     &infer::DecodeStats::layer_runs,
    &infer::DecodeStats::latency_units, &infer::DecodeStats::early_predictions, &infer::DecodeStats::early_matches,
    &infer::DecodeStats::compute_units, &infer::DecodeStats::unverified};

metrics::LineStatistics speed_statistics(const SettingRecords& run, const SettingRecords& baseline) {
  metrics::LineStatistics statistics{.width = kColumns, .values = {}};
  for (size_t line = 0; line < run.size(); ++line) {
    if (run[line].repetitions.empty() || baseline[line].repetitions.empty()) continue;
    const infer::PhaseSeconds& own = run[line].median();
    const infer::PhaseSeconds& other = baseline[line].median();
    const double ratio = own.total() > 0 ? other.total() / own.total() : 0;
    statistics.values.insert(statistics.values.end(), {ratio, 1, other.total(), own.total(), other.decode(),
                                                       static_cast<double>(baseline[line].tokens()), own.decode(),
                                                       static_cast<double>(run[line].tokens())});
  }
  return statistics;
}

double divide(double a, double b) {
  return b > 0 ? a / b : 0;
}

double mean_ratio(std::span<const double> sums) {
  return divide(sums[kRatio], sums[kLines]);
}
double total_ratio(std::span<const double> sums) {
  return divide(sums[kBase], sums[kRun]);
}
double decode_ratio(std::span<const double> sums) {
  return divide(divide(sums[kBaseDecode], sums[kBaseTokens]), divide(sums[kRunDecode], sums[kRunTokens]));
}

Ratio with_interval(const metrics::LineStatistics& statistics, const metrics::ScoreFunction& ratio,
                    const metrics::ResamplingOptions& resampling) {
  return {ratio(statistics.sum()), metrics::bootstrap_interval(statistics, ratio, resampling)};
}

nlohmann::json seconds_json(const infer::PhaseSeconds& seconds) {
  return {seconds.encode, seconds.prefill, seconds.draft, seconds.verify, seconds.other};
}

double ratio_of(int64_t a, int64_t b) {
  return divide(static_cast<double>(a), static_cast<double>(b));
}

// Returns the counts of the timed lines without prefills.
infer::DecodeStats timed_decoding(const SettingRecords& records) {
  infer::DecodeStats sum;
  for (const LineRecord& line : records) {
    if (line.repetitions.empty()) continue;
    sum += line.stats;
    sum.target_runs -= line.prefill_runs;
  }
  return sum;
}

}  // namespace

const infer::PhaseSeconds& LineRecord::median() const {
  if (repetitions.empty()) throw std::logic_error("median of a line that was not timed");
  std::vector<size_t> order(repetitions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return repetitions[a].total() < repetitions[b].total(); });
  return repetitions[order[(order.size() - 1) / 2]];
}

nlohmann::json LineRecord::to_json() const {
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
                      {"seconds", nlohmann::json::array()}};
  for (const auto& repetition : repetitions) json["seconds"].push_back(seconds_json(repetition));
  if (window) json["window"] = *window;
  return json;
}

LineRecord LineRecord::from_json(const nlohmann::json& json) {
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
  if (json.contains("window")) record.window = json.at("window").get<int64_t>();
  for (const auto& repetition : json.at("seconds")) {
    record.repetitions.push_back({.encode = repetition.at(0),
                                  .prefill = repetition.at(1),
                                  .draft = repetition.at(2),
                                  .verify = repetition.at(3),
                                  .other = repetition.at(4)});
  }
  return record;
}

void add_overhead(SettingRecords& batch, double elapsed) {
  double known = 0;
  for (const LineRecord& line : batch) known += line.repetitions.back().total();
  const double share = divide(std::max(elapsed - known, 0.0), static_cast<double>(batch.size()));
  for (LineRecord& line : batch) line.repetitions.back().other += share;
}

double decode_bound(const SettingRecords& run, const SettingRecords& baseline, const LayerDepth& depth) {
  const infer::DecodeStats own = timed_decoding(run);
  const infer::DecodeStats plain = timed_decoding(baseline);
  const double plain_tokens = ratio_of(plain.emitted, plain.target_runs);  // a run
  if (depth.early == 0) return divide(ratio_of(own.emitted, own.target_runs), plain_tokens);
  return divide(ratio_of(own.emitted * depth.layers, own.latency_units), plain_tokens);
}

double layer_bound(const SettingRecords& run, int64_t layers) {
  const infer::DecodeStats own = timed_decoding(run);
  return ratio_of(own.emitted * layers, own.layer_runs);
}

Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline,
                    const metrics::ResamplingOptions& resampling) {
  if (run.size() != baseline.size()) throw std::logic_error("speed: run and baseline differ in lines");
  Speed speed;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    ++speed.lines;
    speed.tokens += line.tokens();
    speed.seconds += line.median();
  }
  speed.tokens_per_second = divide(static_cast<double>(speed.tokens), speed.seconds.total());
  speed.ms_per_token = divide(1000 * speed.seconds.total(), static_cast<double>(speed.tokens));
  speed.decode_ms_per_token = divide(1000 * speed.seconds.decode(), static_cast<double>(speed.tokens));
  const metrics::LineStatistics statistics = speed_statistics(run, baseline);
  if (statistics.lines() == 0) return speed;
  speed.speedup = with_interval(statistics, mean_ratio, resampling);
  speed.speedup_total = with_interval(statistics, total_ratio, resampling);
  speed.speedup_decode = with_interval(statistics, decode_ratio, resampling);
  return speed;
}

infer::DecodeStats sum_of_stats(const SettingRecords& run) {
  infer::DecodeStats total;
  for (const LineRecord& line : run) total += line.stats;
  return total;
}

}  // namespace draftsmith::evaluate
