// Timing of a task's settings beside their baselines, and times of single steps.
#include "base/timing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/logging.h"
#include "base/signals.h"
#include "base/util.h"
#include "evaluate/measure/machine_load.h"
#include "evaluate/measure/measured_task.h"
#include "evaluate/measure/speed.h"

namespace draftsmith::evaluate {
namespace {

// Measures the steps of a setting's drafter.
void calibrate_setting(const Setting& setting, bool measures, int64_t longest, Engine& engine, MeasuredTask& task) {
  const std::string drafting = setting.drafter_label();
  const SettingRecords& greedy = task.own_greedy(setting);
  const std::vector<size_t> lines = typical_lines(greedy);
  if (lines.empty()) return;
  task.drafted_for[drafting] = setting.model;
  if (!measures) return;
  for (const size_t line : lines) {
    const auto costs = engine.step_costs(setting, task.prompts[line], greedy[line].ids, longest + 1);
    task.costs[drafting].push_back(costs);
  }
}

}  // namespace

void calibrate(const SuiteOptions& options, Engine& engine, MeasuredTask& task) {
  int64_t longest = 1;
  for (const Setting& setting : task.settings) {
    const infer::DecodeOptions& decode = setting.decode;
    longest = std::max({longest, decode.window.value_or(10), decode.longest_draft()});
  }
  Progress work({.title = "step times on " + task.task->name}, kHowToGoOn);
  std::set<std::string> done{""};
  for (const Setting& setting : task.settings) {
    work_point();
    if (done.contains(setting.drafter_label())) continue;
    const auto message = failure_of([&] { calibrate_setting(setting, options.calibrate, longest, engine, task); });
    if (!message) done.insert(setting.drafter_label());
    const auto known = std::ranges::find(task.failures, setting.label, &SettingFailure::setting);
    if (message && known == task.failures.end()) task.failures.push_back({setting.label, "step times", *message});
  }
}

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
  costs.draft = median(from_each(measured, &infer::StepCosts::draft));
  const auto medians = [&](std::vector<double> infer::StepCosts::*times) {
    std::vector<double> all;
    size_t size = (measured.front().*times).size();  // less where a setting with a longer window has failed since
    for (const infer::StepCosts& one : measured) size = std::min(size, (one.*times).size());
    for (size_t i = 0; i < size; ++i) {
      all.push_back(median(from_each(measured, [&](const auto& one) { return (one.*times).at(i); })));
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
// Times that turns beside each other are timed at most, whatever the machine does.
constexpr int64_t kMostAttempts = 3;
// With SuiteOptions::precision: rounds of all settings, rounds before what lines differ by is known well enough to end
// a setting for it, and minutes unless the suite has others.
constexpr int64_t kRoundsOfAll = 2;
constexpr int64_t kRoundsUntilHopeless = 3;
constexpr double kMinutes = 10;

using Turn = std::vector<int64_t>;  // first lines of common batches that a setting decodes one after the other
using TimedSettings = std::vector<const Setting*>;

class TaskTiming {
 public:
  TaskTiming(const SuiteOptions& options, Engine& engine, MeasurementStore& store, MeasuredTask& task)
      : options_(options), engine_(engine), store_(store), task_(task) {
    for (const Setting& setting : task.settings) common_ = std::lcm(common_, task.batch_size_of(setting));
  }

  // Returns the turns of so many lines, as an earlier run divided them. The fastest setting's turn takes
  // kSecondsOfATurn.
  std::vector<Turn> turns(int64_t lines) {
    const MeasurementStore::Name name{"batches of a turn", task_.key, std::to_string(common_)};
    if (store_.find(name) == nullptr) {
      warm_up();
      const double batches = fastest_ > 0 ? std::ceil(kSecondsOfATurn / fastest_) : 1;
      store_.add(name, static_cast<int64_t>(std::min<double>(batches, kMostBatchesOfATurn)));
    }
    const auto together = store_.find(name)->get<size_t>();
    std::vector<Turn> turns;
    for (int64_t first = 0; first < lines; first += common_) {
      if (turns.empty() || turns.back().size() == together) turns.emplace_back();
      turns.back().push_back(first);
    }
    return turns;
  }

  // Returns the settings that a round times: all, or, with a precision, those whose interval further pairs narrow down.
  // `widest` gets the one with the widest interval: "speculative 1.43 ±0.05".
  TimedSettings settings_of_round(int64_t round, std::string& widest) const {
    const double precision = options_.precision.value_or(0);
    TimedSettings settings;
    double most = 0;
    for (const Setting& setting : task_.settings) {
      if (failed(setting)) continue;
      const PairedRatio speedup =
          paired_speedup(task_.records.at(setting.label), task_.records.at(baseline(setting).label));
      const auto [lines, machine, all] = speedup.errors();
      const bool hopeless = round >= kRoundsUntilHopeless && lines > precision;
      const bool ends = options_.precision && !options_.spread_minutes && round >= kRoundsOfAll;
      if (ends && (hopeless || !(all > precision))) continue;
      settings.push_back(&setting);
      if (!(all > most)) continue;
      most = all;
      widest = fmt::format("{} {:.2f} ±{:.2f}", setting.label, speedup.ratio().value, speedup.ratio().value * all);
    }
    return settings;
  }

  // Returns whether an earlier run has timed this turn.
  bool is_timed(const Turn& turn, int64_t round) const { return store_.find(name_of(turn, round)) != nullptr; }

  // Times a turn of settings beside their baselines, unless the store has it: times in task.records.
  void time_turn(const Turn& turn, const TimedSettings& settings, int64_t round) {
    const MeasurementStore::Name name = name_of(turn, round);
    const nlohmann::json* known = store_.find(name);
    const auto is_known = [&](const Setting* one) { return failed(*one) || known->contains(measured_name(*one)); };
    if (known != nullptr && !std::ranges::all_of(settings, is_known)) warm_up();  // what failed may fail again
    if (known == nullptr || !std::ranges::all_of(settings, is_known)) {
      warm_up();
      store_.add(name, times_of(turn, settings, round));
      known = store_.find(name);
    }
    for (const Setting& setting : task_.settings) {
      const auto times = known->find(measured_name(setting));
      if (failed(setting) || times == known->end()) continue;
      LineRecord* record = &task_.records.at(setting.label).at(static_cast<size_t>(turn.front()));
      for (const auto& one : *times) (record++)->add_times(one);
    }
  }

  // Returns the messages of the settings that failed, by label.
  const std::map<std::string, std::string>& failures() const { return failed_; }

 private:
  using Times = std::map<const Setting*, SettingRecords>;  // of the lines of a turn

  MeasurementStore::Name name_of(const Turn& turn, int64_t round) const {
    return {"times", task_.key, std::to_string(common_), std::to_string(round), std::to_string(turn.front())};
  }

  const Setting& baseline(const Setting& setting) const { return task_.setting(baseline_of(setting).label); }

  bool failed(const Setting& setting) const {
    return failed_.contains(setting.label) || failed_.contains(baseline_of(setting).label);
  }

  // Calls `work` of a setting that has not failed. Its failure ends the setting's timing, not the others'.
  void attempt(const Setting& setting, const std::function<void()>& work) {
    if (!failed(setting)) try_setting(setting, "timing", work, failed_);
  }

  // Decodes the first lines with every setting, untimed, until allocations, thread pools and caches settle.
  void warm_up() {
    if (std::exchange(warm_, true)) return;
    const int64_t lines = std::min<int64_t>(options_.warmup, task_.lines());
    for (int64_t first = 0; first < lines; first += common_) {
      for (const Setting& setting : task_.settings) {
        attempt(setting, [&] {
          const double seconds = seconds_of_common(setting, first, std::min(first + common_, lines));
          fastest_ = fastest_ > 0 ? std::min(fastest_, seconds) : seconds;
        });
      }
      work_point();
    }
  }

  // Returns the settings in groups whose turns follow one another: one or two with their baseline in the second place.
  std::vector<TimedSettings> groups_of(const TimedSettings& settings) const {
    std::vector<TimedSettings> groups;
    for (const Setting* setting : settings) {
      const Setting* base = &baseline(*setting);
      if (setting == base) continue;
      const auto open = std::ranges::find_if(groups, [&](auto& one) { return one.size() == 2 && one[1] == base; });
      open == groups.end() ? groups.push_back({setting, base}) : open->push_back(setting);
    }
    for (const Setting* setting : settings) {  // a baseline may stand beside nothing
      const auto holds = [&](const TimedSettings& one) { return std::ranges::find(one, setting) != one.end(); };
      if (std::ranges::none_of(groups, holds)) groups.push_back({setting});
    }
    return groups;
  }

  // Times the settings of a turn once. Each round and turn begins with another group, and turns their order round.
  nlohmann::json times_of(const Turn& turn, const TimedSettings& settings, int64_t round) {
    std::vector<TimedSettings> groups = groups_of(settings);
    const int64_t shift = round + turn.front() / (common_ * std::ssize(turn));
    std::ranges::rotate(groups, groups.begin() + shift % std::ssize(groups));
    Times times;
    for (TimedSettings& group : groups) {
      if (shift % 2 == 1) std::ranges::reverse(group);
      time_group(group, turn, times);
    }
    nlohmann::json json = nlohmann::json::object();
    for (const auto& [setting, records] : times) {
      for (const LineRecord& record : records) json[measured_name(*setting)].push_back(record.times_json());
    }
    return json;
  }

  // Times a group, all of it again if the machine stood still. If it always does, the last attempt counts.
  void time_group(const TimedSettings& group, const Turn& turn, Times& times) {
    Times own;
    bool stood_still = true;
    int64_t attempts = 0;
    for (; stood_still && attempts < kMostAttempts; ++attempts) {
      stood_still = false;
      own.clear();
      for (const Setting* setting : group) {
        attempt(*setting, [&] { own[setting] = time(*setting, turn, stood_still); });
        work_point();
      }
    }
    const auto base = own.find(&baseline(*group.front()));
    if (base == own.end()) return;
    base->second.front().timed_again = attempts - 1;
    for (auto& [setting, records] : own) {
      SettingRecords& all = times[setting];  // another group may have timed the baseline before
      all.resize(records.size());
      for (size_t row = 0; row < records.size(); ++row) {
        if (setting != base->first) records[row].baseline = base->second[row].repetitions;
        all[row].add_times(records[row].times_json());
      }
    }
  }

  // Times one turn of a setting. Tells whether the machine stood still meanwhile: this thread then waited for most of a
  // timing. That concerns no setting, and one such second outweighs all lines of a turn.
  SettingRecords time(const Setting& setting, const Turn& turn, bool& stood_still) {
    settle(setting, turn.front());
    const int64_t end = std::min(turn.back() + common_, task_.lines());
    SettingRecords times;
    for (int64_t line = turn.front(); line < end; line = turn.front() + std::ssize(times)) {
      const Stopwatch watch;
      const double running = thread_seconds();
      const SettingRecords batch = engine_.decode(setting, request(setting, line));
      const double elapsed = watch.seconds();
      const double waited = elapsed - (thread_seconds() - running);
      stood_still = stood_still || (waited > kStandstill && waited > kMostWaiting * elapsed);
      for (const LineRecord& timed : batch) {
        const auto at = static_cast<size_t>(turn.front()) + times.size();
        LineRecord& record = times.emplace_back();
        record.turn = turn.front();
        if (task_.records.at(setting.label).at(at).failure) continue;
        record.repetitions = timed.repetitions;
        record.latencies = timed.latencies;
      }
    }
    return times;
  }

  // Decodes a few tokens untimed, since a user's decoding does not follow another model's.
  void settle(const Setting& setting, int64_t first_line) {
    DecodeBatch beginning = request(setting, first_line);
    beginning.max_new_tokens = std::min(beginning.max_new_tokens, kSettlingTokens);
    engine_.decode(setting, beginning);
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

  const SuiteOptions& options_;
  Engine& engine_;
  MeasurementStore& store_;
  MeasuredTask& task_;
  int64_t common_ = 1;  // lines of a common batch: the fewest that every setting decodes in whole batches
  std::map<std::string, std::string> failed_;
  bool warm_ = false;
  double fastest_ = 0;  // seconds of the fastest common batch; 0: unknown
};

}  // namespace

void time_settings(const SuiteOptions& options, Engine& engine, MeasurementStore& store, MeasuredTask& task) {
  const Stopwatch watch;
  const bool ends = options.precision && !options.spread_minutes;
  const double minutes = options.max_minutes.value_or(ends ? kMinutes : std::numeric_limits<double>::infinity());
  const double pause =
      60 * options.spread_minutes.value_or(0) / static_cast<double>(std::max<int64_t>(1, options.repetitions - 1));
  TaskTiming timing(options, engine, store, task);
  const int64_t lines = task.task->timed > 0 ? std::min(task.task->timed, task.lines()) : task.lines();
  Progress progress(
      {.title = "timing " + task.task->name, .unit = "lines", .total = ends ? 0 : lines * options.repetitions},
      kHowToGoOn);
  const std::vector<Turn> turns = timing.turns(lines);
  double begin = 0;  // of the next round, by the watch
  for (int64_t round = 0; round < options.repetitions; ++round) {
    std::string widest;
    const TimedSettings settings = timing.settings_of_round(round, widest);
    if (!widest.empty()) progress.set_note(widest + ", next round");
    if (!turns.empty() && !timing.is_timed(turns.front(), round)) {
      times_after(begin - watch.seconds());
      begin = std::max(begin, watch.seconds()) + pause;
    }
    for (size_t i = 0; i < turns.size() && !settings.empty(); ++i) {
      if (round > 0 && watch.seconds() > 60 * minutes) break;
      timing.time_turn(turns[i], settings, round);
      progress.advance((i + 1 < turns.size() ? turns[i + 1].front() : lines) - turns[i].front());
    }
  }
  progress.finish();
  remove_failed(timing.failures(), "timing", task);
}

}  // namespace draftsmith::evaluate
