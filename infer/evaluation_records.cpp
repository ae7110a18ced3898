#include "infer/evaluation_records.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace draftsmith::infer {
namespace {

// Sums of each timed line, from which every speed ratio follows.
enum Column : size_t { kRatio, kLines, kBase, kRun, kBaseDecode, kBaseTokens, kRunDecode, kRunTokens, kColumns };

LineStatistics speed_statistics(const RunRecords& run, const RunRecords& baseline) {
  LineStatistics statistics{.width = kColumns, .values = {}};
  for (size_t line = 0; line < run.size(); ++line) {
    if (run[line].repetitions.empty() || baseline[line].repetitions.empty()) continue;
    const PhaseSeconds& own = run[line].median();
    const PhaseSeconds& other = baseline[line].median();
    const double ratio = own.total() > 0 ? other.total() / own.total() : 0;
    statistics.values.insert(statistics.values.end(), {ratio, 1, other.total(), own.total(), other.decode(),
                                                       static_cast<double>(baseline[line].ids.size()), own.decode(),
                                                       static_cast<double>(run[line].ids.size())});
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

Ratio with_interval(const LineStatistics& statistics, const ScoreFunction& ratio, const ResamplingOptions& resampling) {
  return {ratio(statistics.sum()), bootstrap_interval(statistics, ratio, resampling)};
}

nlohmann::json seconds_json(const PhaseSeconds& seconds) {
  return {seconds.encode, seconds.prefill, seconds.draft, seconds.verify, seconds.other};
}

double ratio_of(int64_t a, int64_t b) {
  return divide(static_cast<double>(a), static_cast<double>(b));
}

// Share of verifications that accepted j tokens among those that accepted j-1 at least.
std::vector<double> by_position(const std::vector<int64_t>& histogram) {
  std::vector<double> result;
  int64_t reached = std::accumulate(histogram.begin(), histogram.end(), int64_t{0});
  for (size_t length = 0; length + 1 < histogram.size() && reached > 0; ++length) {
    const int64_t next = reached - histogram[length];
    result.push_back(ratio_of(next, reached));
    reached = next;
  }
  return result;
}

}  // namespace

const PhaseSeconds& LineRecord::median() const {
  if (repetitions.empty()) throw std::logic_error("median of a line that was not timed");
  std::vector<size_t> order(repetitions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return repetitions[a].total() < repetitions[b].total(); });
  return repetitions[order[(order.size() - 1) / 2]];
}

nlohmann::json LineRecord::to_json() const {
  nlohmann::json json{{"ids", ids},
                      {"counts", {target_runs, draft_runs, drafted, accepted, fallbacks, rollbacks, examined}},
                      {"overlap", overlap},
                      {"histogram", accepted_histogram},
                      {"seconds", nlohmann::json::array()}};
  for (const auto& repetition : repetitions) json["seconds"].push_back(seconds_json(repetition));
  return json;
}

LineRecord LineRecord::from_json(const nlohmann::json& json) {
  LineRecord record;
  json.at("ids").get_to(record.ids);
  const auto& counts = json.at("counts");
  int64_t* members[] = {&record.target_runs, &record.draft_runs, &record.drafted, &record.accepted,
                        &record.fallbacks,   &record.rollbacks,  &record.examined};
  for (size_t i = 0; i < std::size(members); ++i) counts.at(i).get_to(*members[i]);
  json.at("overlap").get_to(record.overlap);
  json.at("histogram").get_to(record.accepted_histogram);
  for (const auto& repetition : json.at("seconds")) {
    record.repetitions.push_back({.encode = repetition.at(0),
                                  .prefill = repetition.at(1),
                                  .draft = repetition.at(2),
                                  .verify = repetition.at(3),
                                  .other = repetition.at(4)});
  }
  return record;
}

Speed measure_speed(const RunRecords& run, const RunRecords& baseline, const ResamplingOptions& resampling) {
  if (run.size() != baseline.size()) throw std::logic_error("speed: run and baseline differ in lines");
  Speed speed;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    const PhaseSeconds& median = line.median();
    ++speed.lines;
    speed.tokens += static_cast<int64_t>(line.ids.size());
    speed.seconds += median.total();
    speed.phases.encode += median.encode;
    speed.phases.prefill += median.prefill;
    speed.phases.draft += median.draft;
    speed.phases.verify += median.verify;
    speed.phases.other += median.other;
  }
  speed.tokens_per_second = divide(static_cast<double>(speed.tokens), speed.seconds);
  speed.ms_per_token = divide(1000 * speed.seconds, static_cast<double>(speed.tokens));
  const LineStatistics statistics = speed_statistics(run, baseline);
  if (statistics.lines() == 0) return speed;
  speed.speedup = with_interval(statistics, mean_ratio, resampling);
  speed.speedup_total = with_interval(statistics, total_ratio, resampling);
  speed.speedup_decode = with_interval(statistics, decode_ratio, resampling);
  return speed;
}

Acceptance measure_acceptance(const RunRecords& run) {
  Acceptance result;
  int64_t examined = 0;
  double overlap = 0;
  for (const LineRecord& line : run) {
    result.tokens += static_cast<int64_t>(line.ids.size());
    result.target_runs += line.target_runs;
    result.draft_runs += line.draft_runs;
    result.drafted += line.drafted;
    result.accepted += line.accepted;
    result.fallbacks += line.fallbacks;
    result.rollbacks += line.rollbacks;
    examined += line.examined;
    overlap += line.overlap;
    auto& histogram = result.accepted_histogram;
    histogram.resize(std::max(histogram.size(), line.accepted_histogram.size()), 0);
    for (size_t i = 0; i < line.accepted_histogram.size(); ++i) histogram[i] += line.accepted_histogram[i];
  }
  if (examined > 0) result.alpha = overlap / static_cast<double>(examined);
  result.acceptance_rate = ratio_of(result.accepted, result.drafted);
  result.tokens_per_target_run = ratio_of(result.tokens, result.target_runs);
  result.fallback_rate = ratio_of(result.target_runs, result.tokens);
  result.rollback_rate = ratio_of(result.rollbacks, result.tokens);
  result.acceptance_by_position = by_position(result.accepted_histogram);
  return result;
}

}  // namespace draftsmith::infer
