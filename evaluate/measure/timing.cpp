// Timing of a task's settings in turns, and times of single steps.
#include "base/timing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/signals.h"
#include "evaluate/measure/measured_task.h"

namespace draftsmith::evaluate {
namespace {

// Measures the steps of a setting's drafter unless an earlier setting has.
void calibrate_setting(const Setting& setting, bool measures, int64_t longest, Engine& engine, MeasuredTask& task) {
  const std::string drafting = setting.drafter_label();
  const SettingRecords& greedy = task.own_greedy(setting);
  const std::vector<size_t> lines = typical_lines(greedy);
  if (lines.empty()) return;
  task.drafted_for[drafting] = setting.model;
  if (!measures || task.costs.contains(drafting)) return;
  std::vector<infer::StepCosts> measured;
  for (const size_t line : lines) {
    measured.push_back(engine.step_costs(setting, task.prompts[line], greedy[line].ids, longest + 1));
  }
  task.costs[drafting] = median_costs(measured);
}

}  // namespace

void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task) {
  int64_t longest = 1;
  for (const Setting& setting : task.settings) {
    const infer::DecodeOptions& decode = setting.decode;
    longest = std::max({longest, decode.window.value_or(10), decode.longest_draft()});
  }
  const TimedWork work("step times on " + task.task->name, kHowToGoOn);
  for (const Setting& setting : task.settings) {
    work_point();
    if (setting.drafter_label().empty()) continue;
    const auto message = failure_of([&] { calibrate_setting(setting, options.calibrate, longest, engine, task); });
    if (message) task.failures.push_back({setting.label, "step times", *message});
  }
}

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<size_t> typical_lines(const SettingRecords& greedy) {
  std::vector<size_t> order;
  for (size_t line = 0; line < greedy.size(); ++line) {
    if (!greedy[line].ids.empty()) order.push_back(line);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return greedy[a].ids.size() < greedy[b].ids.size(); });
  std::vector<size_t> lines;
  for (const size_t quartile : {1, 2, 3}) {
    if (order.empty()) break;
    const size_t line = order[order.size() * quartile / 4];
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

infer::StepCosts median_costs(std::span<const infer::StepCosts> measured) {
  if (measured.empty()) throw std::logic_error("median of no step times");
  infer::StepCosts costs;
  std::vector<double> draft;
  for (const infer::StepCosts& one : measured) draft.push_back(one.draft);
  costs.draft = median(draft);
  const auto medians = [&](std::vector<double> infer::StepCosts::*times) {
    std::vector<double> all;
    for (size_t i = 0; i < (measured.front().*times).size(); ++i) {
      std::vector<double> one;
      for (const infer::StepCosts& costs_of_line : measured) one.push_back((costs_of_line.*times).at(i));
      all.push_back(median(one));
    }
    return all;
  };
  costs.target = medians(&infer::StepCosts::target);
  costs.drafts = medians(&infer::StepCosts::drafts);
  return costs;
}

namespace {

// Length of a setting's turn where lines are short. Just after another model ran, decoding is up to a seventh slower.
constexpr double kSecondsOfATurn = 0.1;
constexpr int64_t kMostBatchesOfATurn = 16;
// Number of new tokens that are decoded untimed before each turn.
constexpr int64_t kSettlingTokens = 4;
// The machine stood still if a timing's thread waited for longer than this many seconds, and than this share of them.
constexpr double kStandstill = 0.1;
constexpr double kMostWaiting = 0.5;
// Times that a batch is timed at most, whatever the machine does.
constexpr int64_t kMostAttempts = 3;

class TaskTiming {
 public:
  TaskTiming(const SuiteOptions& options, Engine& engine, MeasuredTask& task)
      : options_(options), engine_(engine), task_(task), settings_(task.settings) {
    for (const Setting& setting : settings_) common_ = std::lcm(common_, task.batch_size_of(setting));
  }

  // Returns the number of lines in a common batch: the fewest that every setting decodes in whole batches.
  int64_t common() const { return common_; }

  // Decodes the first lines with every setting, untimed, until allocations, thread pools and caches settle.
  void warm_up() {
    const int64_t lines = std::min<int64_t>(options_.warmup, task_.lines());
    for (int64_t first = 0; first < lines; first += common_) {
      for (const auto& setting : settings_) {
        attempt(setting, [&] {
          const double seconds = seconds_of_common(setting, first, std::min(first + common_, lines));
          fastest_ = fastest_ > 0 ? std::min(fastest_, seconds) : seconds;
        });
      }
      remove_failed();
      work_point();
    }
  }

  // Returns the number of common batches in a turn, so that the fastest setting's turn takes kSecondsOfATurn.
  int64_t batches_of_a_turn() const {
    if (fastest_ <= 0) return 1;
    return std::clamp<int64_t>(std::llround(std::ceil(kSecondsOfATurn / fastest_)), 1, kMostBatchesOfATurn);
  }

  // Times the common batches that begin at these lines.
  void measure(const std::vector<int64_t>& first_lines) {
    for (auto& [label, records] : task_.records) {
      for (const int64_t first : first_lines) {
        for (LineRecord& record : common_of(records, first)) record.turn = first_lines.front();
      }
    }
    for (int64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (size_t i = 0; i < settings_.size(); ++i) {
        const Setting& setting = settings_[(i + static_cast<size_t>(repetition) + turns_) % settings_.size()];
        attempt(setting, [&] { time(setting, first_lines); });
        work_point();
      }
      remove_failed();
    }
    ++turns_;
  }

  // Returns the times of the common batch that begins at `first_line`.
  nlohmann::json times_of(int64_t first_line) {
    nlohmann::json json = nlohmann::json::object();
    for (const auto& setting : settings_) {
      auto& times = json[measured_name(setting)];
      for (const LineRecord& record : common_of(task_.records.at(setting.label), first_line)) {
        times.push_back(record.times_json());
      }
    }
    return json;
  }

  // Takes over times_of() an earlier run, unless it timed other settings. Returns whether it did.
  bool resume(int64_t first_line, const nlohmann::json& times) {
    for (const auto& setting : settings_) {
      if (!times.contains(measured_name(setting))) return false;
    }
    for (const auto& setting : settings_) {
      const std::span<LineRecord> batch = common_of(task_.records.at(setting.label), first_line);
      const auto& own = times.at(measured_name(setting));
      for (size_t row = 0; row < batch.size(); ++row) batch[row].set_times(own.at(row));
    }
    return true;
  }

  // Returns the messages of the settings that failed, by label.
  const std::map<std::string, std::string>& failed() const { return failed_; }

 private:
  // Calls `work` of a setting that has not failed. Its failure ends the setting's timing, not the others'.
  void attempt(const Setting& setting, const std::function<void()>& work) {
    if (!failed_.contains(setting.label)) try_setting(setting, "timing", work, failed_);
  }

  void remove_failed() {
    std::erase_if(settings_, [&](const Setting& setting) { return failed_.contains(setting.label); });
    for (const auto& [label, message] : failed_) task_.records.erase(label);
  }

  // Returns the first line behind the common batch that begins at `first_line`.
  int64_t end_of_common(int64_t first_line) const { return std::min(first_line + common_, task_.lines()); }

  std::span<LineRecord> common_of(SettingRecords& records, int64_t first_line) const {
    return {records.data() + first_line, static_cast<size_t>(end_of_common(first_line) - first_line)};
  }

  // Decodes the lines from `first` to before `last`, at least. Returns the seconds that a common batch takes.
  double seconds_of_common(const Setting& setting, int64_t first, int64_t last) {
    double seconds = 0;
    int64_t decoded = 0;
    for (; first < last; first += task_.batch_size_of(setting)) {
      for (const LineRecord& record : engine_.decode(setting, request(setting, first))) {
        seconds += record.repetitions.back().total();
        ++decoded;
      }
    }
    return seconds * static_cast<double>(common_) / static_cast<double>(decoded);
  }

  DecodeBatch request(const Setting& setting, int64_t first_line) const {
    return {task_.batch(setting, first_line), first_line, task_.max_new_tokens, false,
            first_window(setting, task_.records.at(setting.label), first_line)};
  }

  // Times one turn of a setting.
  void time(const Setting& setting, const std::vector<int64_t>& first_lines) {
    settle(setting, first_lines.front());
    for (const int64_t first : first_lines) {
      for (int64_t line = first; line < end_of_common(first); line += task_.batch_size_of(setting)) {
        time_batch(setting, line);
      }
    }
  }

  // A timing of a batch. The machine may have stood still meanwhile: this thread then waited for most of the time. That
  // concerns no setting, and one such second outweighs all lines of a turn.
  struct Timing {
    SettingRecords records;
    double waited = 0;  // seconds
    bool stood_still = false;
  };

  Timing timing_of(const Setting& setting, int64_t first_line) {
    const Stopwatch watch;
    const double running = thread_seconds();
    Timing timing{.records = engine_.decode(setting, request(setting, first_line))};
    const double elapsed = watch.seconds();
    timing.waited = elapsed - (thread_seconds() - running);
    timing.stood_still = timing.waited > kStandstill && timing.waited > kMostWaiting * elapsed;
    return timing;
  }

  // Times a batch, again if the machine stood still. If it always did, the timing that waited least counts.
  void time_batch(const Setting& setting, int64_t first_line) {
    const std::span<LineRecord> records(task_.records.at(setting.label).data() + first_line,
                                        task_.batch(setting, first_line).size());
    Timing best = timing_of(setting, first_line);
    for (int64_t attempt = 1; best.stood_still && attempt < kMostAttempts; ++attempt) {
      ++records.front().timed_again;
      Timing again = timing_of(setting, first_line);
      if (!again.stood_still || again.waited < best.waited) best = std::move(again);
    }
    add_seconds(best.records, records);
  }

  // Decodes a few tokens untimed, since a user's decoding does not follow another model's.
  void settle(const Setting& setting, int64_t first_line) {
    DecodeBatch beginning = request(setting, first_line);
    beginning.max_new_tokens = std::min(beginning.max_new_tokens, kSettlingTokens);
    engine_.decode(setting, beginning);
  }

  static void add_seconds(const SettingRecords& repetition, std::span<LineRecord> records) {
    for (size_t row = 0; row < records.size(); ++row) {
      if (records[row].failure) continue;
      const auto& seconds = repetition.at(row).repetitions;
      records[row].repetitions.insert(records[row].repetitions.end(), seconds.begin(), seconds.end());
      const auto& latencies = repetition.at(row).latencies;
      records[row].latencies.insert(records[row].latencies.end(), latencies.begin(), latencies.end());
    }
  }

  const SuiteOptions& options_;
  Engine& engine_;
  MeasuredTask& task_;
  std::vector<Setting> settings_;  // those of the task that have not failed
  int64_t common_ = 1;
  std::map<std::string, std::string> failed_;
  double fastest_ = 0;  // seconds of the fastest common batch; 0: unknown
  size_t turns_ = 0;    // number of measure() calls
};

}  // namespace

void time_settings(const SuiteOptions& options, Engine& engine, MeasurementStore& store, const SuiteContext& context,
                   MeasuredTask& task) {
  TaskTiming timing(options, engine, task);
  const int64_t lines = task.task->timed > 0 ? std::min(task.task->timed, task.lines()) : task.lines();
  const int64_t common = timing.common();
  Progress progress(
      {.style = progress_style(context.quiet), .title = "timing " + task.task->name, .unit = "lines", .total = lines});
  const LongWork work(kHowToGoOn, [&] { progress.tick(); });
  const auto rows = [&](int64_t first) { return std::min(common, lines - first); };
  const auto name_of = [&](int64_t first) {
    return MeasurementStore::Name{"times", task.key, std::to_string(first), std::to_string(common)};
  };
  std::vector<int64_t> missing;  // first lines of common batches
  for (int64_t first = 0; first < lines; first += common) {
    const nlohmann::json* known = store.find(name_of(first));
    if (known != nullptr && timing.resume(first, *known)) {
      progress.advance(rows(first));
    } else {
      missing.push_back(first);
    }
  }
  if (!missing.empty()) timing.warm_up();
  const auto together = static_cast<size_t>(timing.batches_of_a_turn());
  for (size_t begin = 0; begin < missing.size(); begin += together) {
    const auto from = missing.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<int64_t> turn(from,
                                    from + static_cast<std::ptrdiff_t>(std::min(together, missing.size() - begin)));
    timing.measure(turn);
    for (const int64_t first : turn) {
      store.add(name_of(first), timing.times_of(first));
      progress.advance(rows(first));
    }
  }
  progress.finish();
  remove_failed(timing.failed(), "timing", task);
}

}  // namespace draftsmith::evaluate
