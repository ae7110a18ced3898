#include "evaluate/measure/speed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace draftsmith::evaluate {
namespace {

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {metrics::percentile(values, 0.5), metrics::percentile(values, 0.95), metrics::percentile(values, 0.99)};
}

}  // namespace

Latency measure_latency(const SettingRecords& run) {
  std::vector<double> sentences;
  std::vector<double> tokens;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    sentences.push_back(1000 * line.latency());
    const auto outputs = std::max(1.0, static_cast<double>(line.first_tokens.size()));
    if (line.tokens() > 0) tokens.push_back(sentences.back() * outputs / static_cast<double>(line.tokens()));
  }
  return {percentiles_of(std::move(sentences)), percentiles_of(std::move(tokens))};
}

namespace {

double quotient(double a, double b) {
  return b > 0 ? a / b : 0;
}

// Tokens and seconds of a setting and of its baseline, of a line or summed.
struct PairSums {
  double own_tokens = 0;
  double base_tokens = 0;
  double own_seconds = 0;
  double base_seconds = 0;

  // Returns the logarithm of the ratio of both rates. NaN without tokens or seconds.
  double log_ratio() const {
    const double least = std::min({own_tokens, base_tokens, own_seconds, base_seconds});
    return least > 0 ? std::log(own_tokens / own_seconds * (base_seconds / base_tokens)) : NAN;
  }
  PairSums& add(const PairSums& other, double sign = 1) {
    own_tokens += sign * other.own_tokens;
    base_tokens += sign * other.base_tokens;
    own_seconds += sign * other.own_seconds;
    base_seconds += sign * other.base_seconds;
    return *this;
  }
};

// Line that a setting and its baseline were timed on.
struct PairedLine {
  int64_t turn = 0;
  PairSums sums = {};             // seconds of the pair with the least product of both times
  std::vector<double> logs = {};  // of base / own of each pair
  double mean = 0;                // of the undisturbed pairs' logs
  double undisturbed = 0;         // their number; 0: a timing took no time, which no ratio describes
};

using Seconds = double (infer::PhaseSeconds::*)() const;

// Returns the lines that both were timed on. Baselines, without LineRecord::baseline, stand beside themselves.
std::vector<PairedLine> paired_lines(const SettingRecords& run, const SettingRecords& baseline, Seconds seconds) {
  if (run.size() != baseline.size()) throw std::logic_error("speed: run and baseline differ in lines");
  std::vector<PairedLine> lines;
  for (size_t i = 0; i < run.size(); ++i) {
    const auto& base = run[i].baseline.empty() ? baseline[i].repetitions : run[i].baseline;
    const size_t pairs = std::min(run[i].repetitions.size(), base.size());
    if (pairs == 0) continue;
    PairedLine& line = lines.emplace_back(PairedLine{.turn = run[i].turn});
    PairSums& sums = line.sums;
    for (size_t pair = 0; pair < pairs; ++pair) {
      const double a = (run[i].repetitions[pair].*seconds)();
      const double b = (base[pair].*seconds)();
      line.logs.push_back(std::log(b / a));
      if (pair > 0 && a * b >= sums.own_seconds * sums.base_seconds) continue;
      sums = {static_cast<double>(run[i].tokens()), static_cast<double>(baseline[i].tokens()), a, b};
    }
    if (!std::ranges::all_of(line.logs, [](double log) { return std::isfinite(log); })) line.logs.clear();
  }
  return lines;
}

// Pairs further than kDisturbed standard deviations from their line's shortest pair are disturbed. What a pair differs
// from the line's mean by counts kMostNoise standard deviations at most, of two pairs, which tell less,
// kMostNoiseOfTwo. Intervals then hold the truth of simulated machines as often as they say (tests/evaluate/measure).
constexpr double kDisturbed = 2;
constexpr double kMostNoise = 1.25;
constexpr double kMostNoiseOfTwo = 1.5;
// Rounds that tell what differs from one to the next: a pace that holds for longer than a round.
constexpr size_t kRoundsThatTell = 4;

// Returns the standard deviation of a pair's log. It is that of a normal distribution with the same median distance
// between successive pairs of a line.
double deviation_of_pairs(const std::vector<PairedLine>& lines) {
  std::vector<double> distances;
  for (const PairedLine& line : lines) {
    for (size_t i = 1; i < line.logs.size(); ++i) distances.push_back(std::abs(line.logs[i] - line.logs[i - 1]));
  }
  constexpr double kMedianDistance = 0.9539;  // of two standard normal numbers
  return distances.empty() ? 0 : percentiles_of(std::move(distances)).p50 / kMedianDistance;
}

// Averages the undisturbed pairs of a line, and gives its seconds their ratio. A stop lengthens times, so the shortest
// pair is the least disturbed one.
void average(double deviation, PairedLine& line) {
  constexpr double kRounding = 1e-9;
  PairSums& sums = line.sums;
  const double shortest = std::log(sums.base_seconds / sums.own_seconds);
  double sum = 0;
  for (const double log : line.logs) {
    if (std::abs(log - shortest) > kDisturbed * deviation + kRounding) continue;
    sum += log;
    ++line.undisturbed;
  }
  if (line.undisturbed == 0) return;
  line.mean = sum / line.undisturbed;
  const double middle = std::sqrt(sums.own_seconds * sums.base_seconds);
  sums.own_seconds = middle * std::exp(-line.mean / 2);
  sums.base_seconds = middle * std::exp(line.mean / 2);
}

// Adds the variance of what pairs of the same line differ by. Pairs of one turn and round share disturbances, those of
// one round a pace that holds for minutes.
void add_machine_noise(const std::vector<PairedLine>& lines, const PairSums& all, double deviation,
                       PairedRatio& ratio) {
  std::map<std::pair<int64_t, size_t>, double> noise;  // by turn and round
  std::map<size_t, double> rounds;
  std::set<int64_t> turns;
  double independent = 0;
  for (const PairedLine& line : lines) {
    const auto pairs = static_cast<double>(line.logs.size());
    if (pairs < 2) continue;
    turns.insert(line.turn);
    const double most = (pairs > 2 ? kMostNoise : kMostNoiseOfTwo) * deviation;
    const double share = (line.sums.own_seconds / all.own_seconds + line.sums.base_seconds / all.base_seconds) / 2;
    const double weight = share / line.undisturbed * std::sqrt(pairs / (pairs - 1));
    for (size_t round = 0; round < line.logs.size(); ++round) {
      const double off = line.logs[round] - line.mean;
      const double change = weight * std::clamp(off, -most, most);
      noise[{line.turn, round}] += change;
      rounds[round] += weight * std::clamp(off, -kDisturbed * deviation, kDisturbed * deviation);
      independent += change * change;
    }
  }
  for (const auto& [place, change] : noise) ratio.machine += change * change;
  ratio.shared = std::max(0.0, ratio.machine - independent);
  ratio.freedom = static_cast<double>(noise.size() - turns.size());
  if (rounds.size() < kRoundsThatTell) return;
  for (const auto& [round, change] : rounds) ratio.drift += change * change;
  ratio.drift = std::max(0.0, ratio.drift - ratio.machine);
  ratio.drift_freedom = static_cast<double>(rounds.size() - 1);
}

PairedRatio paired_ratio(std::vector<PairedLine> lines) {
  const double deviation = deviation_of_pairs(lines);
  PairSums all;
  for (PairedLine& line : lines) {
    average(deviation, line);
    all.add(line.sums);
  }
  PairedRatio ratio{.log = all.log_ratio()};
  if (!std::isfinite(ratio.log)) return ratio;
  const bool repeated = std::ranges::any_of(lines, [](const PairedLine& line) { return line.logs.size() > 1; });
  std::map<int64_t, PairSums> parts;
  for (size_t i = 0; i < lines.size(); ++i) {
    parts[repeated ? static_cast<int64_t>(i) : lines[i].turn].add(lines[i].sums);
  }
  for (const auto& [place, part] : parts) {
    PairSums rest = all;
    ratio.without.push_back(rest.add(part, -1).log_ratio() - ratio.log);
  }
  if (repeated) add_machine_noise(lines, all, deviation, ratio);
  return ratio;
}

// Returns the 97.5 % point of Student's distribution, by Fisher's expansion around the normal one's.
double student_point(double freedom) {
  const double n = std::max(1.0, freedom);  // 1 also for NaN, where nothing varies
  return 1.960 + 2.372 / n + 2.823 / (n * n) + 2.556 / (n * n * n);
}

}  // namespace

ErrorSources PairedRatio::errors() const {
  const auto n = static_cast<double>(without.size());
  double lines = 0;  // variance, by the jackknife; of one line unknown
  for (const double change : without) lines += (n - 1) / n * change * change;
  if (n < 2) lines = NAN;
  if (n < 2 && freedom == 0) return {};
  const double moment = n < 2 ? machine : shared;
  const double total = (n < 2 ? 0 : lines) + moment + drift;
  // Welch and Satterthwaite: degrees of freedom of a sum of estimates
  const auto part = [](double variance, double own) { return variance > 0 ? variance * variance / own : 0; };
  const double inverse = part(lines, n - 1) + part(moment, freedom) + part(drift, drift_freedom);
  const double point = student_point(total * total / inverse);
  const double ours = freedom > 0 ? std::min(machine + drift, total) : NAN;
  return {.lines = point * std::sqrt(n < 2 ? NAN : total - ours),
          .machine = point * std::sqrt(ours),
          .all = point * std::sqrt(total)};
}

Ratio PairedRatio::ratio() const {
  const double half = errors().all;
  return {std::exp(log), {std::exp(log - half), std::exp(log + half)}};
}

PairedRatio operator/(const PairedRatio& a, const PairedRatio& b) {
  PairedRatio ratio{a.log - b.log,
                    a.without,
                    a.machine + b.machine,
                    a.shared + b.shared,
                    a.freedom + b.freedom,
                    a.drift + b.drift,
                    a.drift_freedom + b.drift_freedom};
  ratio.without.resize(std::max(a.without.size(), b.without.size()));
  for (size_t i = 0; i < b.without.size(); ++i) ratio.without[i] -= b.without[i];
  return ratio;
}

PairedRatio paired_speedup(const SettingRecords& run, const SettingRecords& baseline) {
  return paired_ratio(paired_lines(run, baseline, &infer::PhaseSeconds::total));
}

infer::DecodeStats timed_counts(const SettingRecords& run) {
  infer::DecodeStats sum;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    sum += line.stats;
    sum.target_runs -= line.prefill_runs;
  }
  return sum;
}

Speed measure_speed(const SettingRecords& run, const SettingRecords& baseline) {
  Speed speed;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    ++speed.lines;
    speed.tokens += line.tokens();
    speed.seconds += line.median();
  }
  const auto tokens = static_cast<double>(speed.tokens);
  speed.tokens_per_second = quotient(tokens, speed.seconds.total());
  speed.sentences_per_second = quotient(static_cast<double>(speed.lines), speed.seconds.total());
  speed.latency = measure_latency(run);
  speed.ms_per_token = quotient(1000 * speed.seconds.total(), tokens);
  speed.decode_ms_per_token = quotient(1000 * speed.seconds.decode(), tokens);
  std::vector<PairedLine> lines = paired_lines(run, baseline, &infer::PhaseSeconds::total);
  const PairedRatio speedup = paired_ratio(lines);
  speed.speedup = speedup.ratio();
  const ErrorSources errors = speedup.errors();
  speed.speedup_error = {.lines = speed.speedup.value * errors.lines, .machine = speed.speedup.value * errors.machine};
  speed.speedup_decode = paired_ratio(paired_lines(run, baseline, &infer::PhaseSeconds::decode)).ratio();
  for (PairedLine& line : lines) line.sums.own_tokens = line.sums.base_tokens = 1;
  speed.speedup_total = paired_ratio(std::move(lines)).ratio();
  return speed;
}

}  // namespace draftsmith::evaluate
