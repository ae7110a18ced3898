#include "evaluate/measure/speed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/random.h"

namespace draftsmith::evaluate {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {percentile(values, 0.5), percentile(values, 0.95), percentile(values, 0.99)};
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

// Sums over lines of one setting.
struct Sums {
  double tokens = 0;
  double seconds = 0;
  double decode_seconds = 0;

  double rate() const { return quotient(tokens, seconds); }
  double decode_rate() const { return quotient(tokens, decode_seconds); }
};

// Seconds of one repetition of a line.
struct Times {
  double total = 0;
  double decode = 0;
};

// Timed line of a setting.
struct TimedLine {
  double tokens = 0;
  std::vector<Times> repetitions;
};

TimedLine timed(const LineRecord& record) {
  TimedLine line{.tokens = static_cast<double>(record.tokens()), .repetitions = {}};
  for (const auto& seconds : record.repetitions) line.repetitions.push_back({seconds.total(), seconds.decode()});
  return line;
}

// Sums of a setting and its baseline over the same lines.
struct PairOfSums {
  Sums own;
  Sums base;
};

// Lines that a setting and its baseline were timed on, in turns.
class TimedLines {
 public:
  TimedLines(const SettingRecords& run, const SettingRecords& baseline) : same_(&run == &baseline) {
    std::map<int64_t, size_t> turns;
    for (size_t line = 0; line < run.size(); ++line) {
      if (run[line].repetitions.empty() || baseline[line].repetitions.empty()) continue;
      own_.push_back(timed(run[line]));
      base_.push_back(timed(baseline[line]));
      repetitions_ = std::max({repetitions_, own_.back().repetitions.size(), base_.back().repetitions.size()});
      turn_of_.push_back(turns.try_emplace(run[line].turn, turns.size()).first->second);
      lines_of_.resize(turns.size());
      lines_of_[turn_of_.back()].push_back(turn_of_.size() - 1);
    }
    for (size_t repetition = 0; repetition < repetitions_; ++repetition) all_.push_back(repetition);
  }

  bool empty() const { return own_.empty(); }

  // Returns the sums over all lines, each with its median repetition.
  PairOfSums sums() {
    PairOfSums sums;
    for (size_t line = 0; line < own_.size(); ++line) {
      add(own_[line], all_.data(), sums.own);
      add(base_[line], all_.data(), sums.base);
    }
    return sums;
  }

  // Returns the sums over drawn lines, each with the median of drawn repetitions.
  PairOfSums resample(RandomSequence& random) {
    const size_t turns = lines_of_.size();
    drawn_.resize(2 * turns * repetitions_);
    if (repetitions_ > 1) {
      for (size_t& repetition : drawn_) repetition = random.below(repetitions_);
    }
    PairOfSums sums;
    if (repetitions_ == 1 && turns > 1) {
      for (size_t i = 0; i < turns; ++i) {
        for (const size_t line : lines_of_[random.below(turns)]) add_drawn(line, sums);
      }
    } else {
      for (size_t i = 0; i < own_.size(); ++i) add_drawn(random.below(own_.size()), sums);
    }
    return sums;
  }

 private:
  void add_drawn(size_t line, PairOfSums& sums) {
    const size_t turn = turn_of_[line];
    // A baseline beside itself has the same draw, so that its ratio is 1.
    const size_t base_turn = same_ ? turn : lines_of_.size() + turn;
    add(own_[line], drawn_.data() + turn * repetitions_, sums.own);
    add(base_[line], drawn_.data() + base_turn * repetitions_, sums.base);
  }

  // Adds the line with the median, by total, of these repetitions; of an even number the lower of the two in the
  // middle.
  void add(const TimedLine& line, const size_t* repetitions, Sums& sums) {
    const size_t count = line.repetitions.size();
    times_.clear();
    for (size_t r = 0; r < count; ++r) times_.push_back(line.repetitions[repetitions[r] % count]);
    const auto middle = times_.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
    std::nth_element(times_.begin(), middle, times_.end(),
                     [](const Times& a, const Times& b) { return a.total < b.total; });
    sums.tokens += line.tokens;
    sums.seconds += middle->total;
    sums.decode_seconds += middle->decode;
  }

  bool same_;  // setting and baseline are one measurement
  std::vector<TimedLine> own_;
  std::vector<TimedLine> base_;
  std::vector<size_t> turn_of_;                // by line
  std::vector<std::vector<size_t>> lines_of_;  // by turn
  size_t repetitions_ = 1;
  std::vector<size_t> all_;    // 0, 1, ..., repetitions_ - 1
  std::vector<size_t> drawn_;  // repetitions, by setting (own, baseline) and turn
  std::vector<Times> times_;   // scratch of add()
};

using RatioOf = double (*)(const PairOfSums& sums);

constexpr std::array<std::pair<RatioOf, Ratio Speed::*>, 3> kRatios{{
    {[](const PairOfSums& sums) { return quotient(sums.own.rate(), sums.base.rate()); }, &Speed::speedup},
    {[](const PairOfSums& sums) { return quotient(sums.base.seconds, sums.own.seconds); }, &Speed::speedup_total},
    {[](const PairOfSums& sums) { return quotient(sums.own.decode_rate(), sums.base.decode_rate()); },
     &Speed::speedup_decode},
}};

void add_ratios(TimedLines& lines, const metrics::ResamplingOptions& resampling, Speed& speed) {
  const PairOfSums sums = lines.sums();
  std::array<std::vector<double>, kRatios.size()> drawn;
  RandomSequence random{CounterRandom(resampling.seed, "evaluate/speed")};
  for (int64_t resample = 0; resample < resampling.resamples; ++resample) {
    const PairOfSums of_resample = lines.resample(random);
    for (size_t i = 0; i < kRatios.size(); ++i) drawn[i].push_back(kRatios[i].first(of_resample));
  }
  for (size_t i = 0; i < kRatios.size(); ++i) {
    const auto& [ratio, member] = kRatios[i];
    speed.*member = {ratio(sums), metrics::percentile_interval(drawn[i], resampling.confidence)};
  }
}

}  // namespace

infer::DecodeStats timed_counts(const SettingRecords& run) {
  infer::DecodeStats sum;
  for (const LineRecord& line : run) {
    if (line.repetitions.empty()) continue;
    sum += line.stats;
    sum.target_runs -= line.prefill_runs;
  }
  return sum;
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
  const auto tokens = static_cast<double>(speed.tokens);
  speed.tokens_per_second = quotient(tokens, speed.seconds.total());
  speed.sentences_per_second = quotient(static_cast<double>(speed.lines), speed.seconds.total());
  speed.latency = measure_latency(run);
  speed.ms_per_token = quotient(1000 * speed.seconds.total(), tokens);
  speed.decode_ms_per_token = quotient(1000 * speed.seconds.decode(), tokens);
  TimedLines lines(run, baseline);
  if (!lines.empty()) add_ratios(lines, resampling, speed);
  return speed;
}

}  // namespace draftsmith::evaluate
