#include "evaluate/measure/measure.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/timing.h"

namespace draftsmith::evaluate {
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

using Batch = std::map<std::string, SettingRecords>;

nlohmann::json to_json(const Batch& batch) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [label, records] : batch) {
    for (const auto& record : records) json[label].push_back(record.to_json());
  }
  return json;
}

Batch batch_from_json(const nlohmann::json& json) {
  Batch batch;
  for (const auto& [label, records] : json.items()) {
    for (const auto& record : records) batch[label].push_back(LineRecord::from_json(record));
  }
  return batch;
}

bool covers(const Batch& batch, const std::vector<Setting>& settings, size_t lines) {
  return std::all_of(settings.begin(), settings.end(), [&](const auto& setting) {
    const auto found = batch.find(setting.label);
    return found != batch.end() && found->second.size() == lines;
  });
}

class TaskMeasurement {
 public:
  TaskMeasurement(const MeasureTask& task, const SuiteOptions& options, Engine& engine)
      : task_(task), options_(options), engine_(engine) {}

  // Decodes the first lines with every setting, untimed, until allocations, thread pools and caches settle.
  void warm_up() {
    const int64_t lines = std::min<int64_t>(options_.warmup, lines_of_task());
    for (int64_t first = 0; first < lines; first += options_.batch_size) {
      for (const auto& setting : task_.settings) {
        const double seconds = seconds_of(engine_.decode(setting, request(setting, first, false)));
        fastest_ = fastest_ > 0 ? std::min(fastest_, seconds) : seconds;
      }
      throw_if_stop_requested(kHowToGoOn);
    }
  }

  // Returns the number of batches in a turn, so that the fastest setting's turn takes kSecondsOfATurn.
  int64_t batches_of_a_turn() const {
    if (fastest_ <= 0) return 1;
    return std::clamp<int64_t>(std::llround(std::ceil(kSecondsOfATurn / fastest_)), 1, kMostBatchesOfATurn);
  }

  // Measures the batches that begin at these lines, and returns them in this order.
  std::vector<Batch> measure(const std::vector<int64_t>& first_lines) {
    std::vector<Batch> results(first_lines.size());
    for (const auto& setting : task_.settings) {
      for (size_t b = 0; b < first_lines.size(); ++b) {
        SettingRecords& records = results[b][setting.label] =
            engine_.decode(setting, request(setting, first_lines[b], true));
        for (auto& record : records) {
          record.repetitions.clear();
          record.turn = first_lines.front();
        }
        carry_on(setting.label, first_lines[b], records);
      }
      throw_if_stop_requested(kHowToGoOn);
    }
    for (int64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (size_t i = 0; i < task_.settings.size(); ++i) {
        time(task_.settings[(i + static_cast<size_t>(repetition) + turns_) % task_.settings.size()], first_lines,
             results);
        throw_if_stop_requested(kHowToGoOn);
      }
    }
    ++turns_;
    return results;
  }

  // Notes the windows that a batch measured earlier carries on.
  void carry_on(int64_t first_line, const Batch& batch) {
    for (const auto& [label, records] : batch) carry_on(label, first_line, records);
  }

  std::span<const Prompt> batch(int64_t first) const {
    const int64_t rows = std::min(options_.batch_size, lines_of_task() - first);
    return {task_.prompts.data() + first, static_cast<size_t>(rows)};
  }

  int64_t lines_of_task() const { return static_cast<int64_t>(task_.prompts.size()); }

 private:
  // A batch begins with the windows that the batch before it carried on when it was counted. So windows depend neither
  // on turns nor on repetitions, and a continued evaluation has the same.
  DecodeBatch request(const Setting& setting, int64_t first_line, bool count) const {
    const auto window = windows_.find({setting.label, first_line});
    return {batch(first_line), first_line, task_.max_new_tokens, count,
            window != windows_.end() ? window->second : std::nullopt};
  }

  void carry_on(const std::string& label, int64_t first_line, const SettingRecords& records) {
    windows_[{label, first_line + std::ssize(records)}] = records.back().window;
  }

  // Times one turn of a setting, over the batches with timed lines.
  void time(const Setting& setting, const std::vector<int64_t>& first_lines, std::vector<Batch>& results) {
    bool settled = false;
    for (size_t b = 0; b < first_lines.size(); ++b) {
      if (task_.timed > 0 && first_lines[b] >= task_.timed) continue;
      if (!settled) settle(setting, first_lines[b]);
      settled = true;
      time_batch(setting, first_lines[b], results[b][setting.label]);
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
    Timing timing{.records = engine_.decode(setting, request(setting, first_line, false))};
    const double elapsed = watch.seconds();
    timing.waited = elapsed - (thread_seconds() - running);
    timing.stood_still = timing.waited > kStandstill && timing.waited > kMostWaiting * elapsed;
    return timing;
  }

  // Times a batch, again if the machine stood still. If it always did, the timing that waited least counts.
  void time_batch(const Setting& setting, int64_t first_line, SettingRecords& records) {
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
    DecodeBatch beginning = request(setting, first_line, false);
    beginning.max_new_tokens = std::min(beginning.max_new_tokens, kSettlingTokens);
    engine_.decode(setting, beginning);
  }

  static double seconds_of(const SettingRecords& batch) {
    double seconds = 0;
    for (const LineRecord& record : batch) seconds += record.repetitions.back().total();
    return seconds;
  }

  static void add_seconds(const std::vector<LineRecord>& repetition, SettingRecords& records) {
    for (size_t row = 0; row < records.size(); ++row) {
      if (records[row].failure) continue;
      const auto& seconds = repetition.at(row).repetitions;
      records[row].repetitions.insert(records[row].repetitions.end(), seconds.begin(), seconds.end());
    }
  }

  const MeasureTask& task_;
  const SuiteOptions& options_;
  Engine& engine_;
  double fastest_ = 0;  // seconds of the fastest batch; 0: unknown
  size_t turns_ = 0;    // number of measure() calls
  // DecodeBatch::window by label and first line.
  std::map<std::pair<std::string, int64_t>, std::optional<int64_t>> windows_;
};

}  // namespace

MeasurementStore::MeasurementStore(std::filesystem::path file, const std::string& key) : file_(std::move(file)) {
  load(key);
  if (!batches_.empty()) {
    stream_.open(file_, std::ios::app);
    return;
  }
  stream_.open(file_, std::ios::trunc);
  stream_ << nlohmann::json{{"key", key}}.dump() << "\n" << std::flush;
}

void MeasurementStore::load(const std::string& key) {
  std::ifstream input(file_);
  std::string line;
  uintmax_t whole = 0;
  try {
    if (!std::getline(input, line) || nlohmann::json::parse(line).at("key") != key) return;
    whole = line.size() + 1;
    while (std::getline(input, line)) {
      if (input.eof()) break;  // the last line of a killed evaluation may be cut off
      const auto json = nlohmann::json::parse(line);
      batches_[{json.at("task"), json.at("line")}] = batch_from_json(json.at("runs"));
      whole += line.size() + 1;
    }
  } catch (const nlohmann::json::exception&) {
    log_warning("{}: a damaged measurement and what follows it is measured again", file_.string());
  }
  resumed_ = static_cast<int64_t>(batches_.size());
  if (resumed_ == 0) return;
  input.close();
  std::filesystem::resize_file(file_, whole);
}

const Batch* MeasurementStore::find(const std::string& task, int64_t first_line) const {
  const auto found = batches_.find({task, first_line});
  return found == batches_.end() ? nullptr : &found->second;
}

void MeasurementStore::add(const std::string& task, int64_t first_line, const Batch& batch) {
  stream_ << nlohmann::json{{"task", task}, {"line", first_line}, {"runs", to_json(batch)}}.dump() << "\n"
          << std::flush;
  if (!stream_) {
    throw RunError({.where = file_.string(),
                    .what = "a measurement could not be written",
                    .expected = "",
                    .found = "",
                    .hint = "is the disk full?"});
  }
  batches_[{task, first_line}] = batch;
}

void MeasurementStore::remove() {
  stream_.close();
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

TaskRecords measure_task(const MeasureTask& task, const SuiteOptions& options, Engine& engine, MeasurementStore& store,
                         const SuiteContext& context) {
  TaskMeasurement measurement(task, options, engine);
  Progress progress({.style = progress_style(context.quiet),
                     .title = "evaluating " + task.name,
                     .unit = "lines",
                     .total = measurement.lines_of_task()});
  std::vector<int64_t> missing;  // first lines of batches
  for (int64_t first = 0; first < measurement.lines_of_task(); first += options.batch_size) {
    const size_t rows = measurement.batch(first).size();
    const Batch* known = store.find(task.name, first);
    if (known != nullptr && covers(*known, task.settings, rows)) {
      progress.advance(static_cast<int64_t>(rows));
      measurement.carry_on(first, *known);
    } else {
      missing.push_back(first);
    }
  }
  if (!missing.empty()) measurement.warm_up();
  const auto together = static_cast<size_t>(measurement.batches_of_a_turn());
  for (size_t begin = 0; begin < missing.size(); begin += together) {
    const auto from = missing.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<int64_t> turn(from,
                                    from + static_cast<std::ptrdiff_t>(std::min(together, missing.size() - begin)));
    const std::vector<Batch> measured = measurement.measure(turn);
    for (size_t b = 0; b < turn.size(); ++b) {
      store.add(task.name, turn[b], measured[b]);
      progress.advance(std::ssize(measurement.batch(turn[b])));
    }
    throw_if_stop_requested(kHowToGoOn);
  }
  progress.finish();
  TaskRecords records;
  for (int64_t first = 0; first < measurement.lines_of_task(); first += options.batch_size) {
    for (const auto& setting : task.settings) {
      const SettingRecords& batch = store.find(task.name, first)->at(setting.label);
      records[setting.label].insert(records[setting.label].end(), batch.begin(), batch.end());
    }
  }
  return records;
}

}  // namespace draftsmith::evaluate
