#include "infer/evaluation_measure.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/progress.h"
#include "base/signals.h"

namespace draftsmith::infer {
namespace {

// New tokens of the untimed decoding before each timed one: enough that every layer of target and drafter runs.
constexpr int64_t kSettlingTokens = 4;

using Batch = std::map<std::string, RunRecords>;

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

bool covers(const Batch& batch, const std::vector<RunSettings>& runs, size_t lines) {
  return std::all_of(runs.begin(), runs.end(), [&](const auto& run) {
    const auto found = batch.find(run.label);
    return found != batch.end() && found->second.size() == lines;
  });
}

class TaskMeasurement {
 public:
  TaskMeasurement(const MeasureTask& task, const EvaluationOptions& options, EvaluationEngine& engine)
      : task_(task), options_(options), engine_(engine) {}

  // Every setting sees the first lines once, untimed: allocations, thread pools and caches settle.
  void warm_up() {
    if (warm_) return;
    const int64_t lines = std::min<int64_t>(options_.warmup, lines_of_task());
    for (int64_t first = 0; first < lines; first += options_.batch_size) {
      for (const auto& run : task_.runs) engine_.decode(run, request(first, false));
      throw_if_stop_requested(kHowToGoOn);
    }
    warm_ = true;
  }

  Batch measure(int64_t first_line) {
    warm_up();
    Batch result;
    for (const auto& run : task_.runs) {
      result[run.label] = engine_.decode(run, request(first_line, true));
      for (auto& record : result[run.label]) record.repetitions.clear();
    }
    const bool timed = task_.timed == 0 || first_line < task_.timed;
    for (int64_t repetition = 0; timed && repetition < options_.repetitions; ++repetition) {
      const auto offset = static_cast<size_t>(repetition + first_line / options_.batch_size);
      for (size_t i = 0; i < task_.runs.size(); ++i) {
        const RunSettings& run = task_.runs[(i + offset) % task_.runs.size()];
        settle(run, first_line);
        add_seconds(engine_.decode(run, request(first_line, false)), result[run.label]);
      }
      throw_if_stop_requested(kHowToGoOn);
    }
    return result;
  }

  std::span<const Prompt> batch(int64_t first) const {
    const int64_t rows = std::min(options_.batch_size, lines_of_task() - first);
    return {task_.prompts.data() + first, static_cast<size_t>(rows)};
  }

  int64_t lines_of_task() const { return static_cast<int64_t>(task_.prompts.size()); }

 private:
  DecodeBatch request(int64_t first_line, bool count) const {
    return {batch(first_line), first_line, task_.max_new_tokens, count};
  }

  // Runs take turns, but a user's run goes on alone: its weights are in the processor's caches, not those of the model
  // that happened to run before it.
  void settle(const RunSettings& run, int64_t first_line) {
    DecodeBatch beginning = request(first_line, false);
    beginning.max_new_tokens = std::min(beginning.max_new_tokens, kSettlingTokens);
    engine_.decode(run, beginning);
  }

  static void add_seconds(const std::vector<LineRecord>& repetition, RunRecords& records) {
    for (size_t row = 0; row < records.size(); ++row) {
      const auto& seconds = repetition.at(row).repetitions;
      records[row].repetitions.insert(records[row].repetitions.end(), seconds.begin(), seconds.end());
    }
  }

  const MeasureTask& task_;
  const EvaluationOptions& options_;
  EvaluationEngine& engine_;
  bool warm_ = false;
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
      if (input.eof()) break;  // a killed run's last line has no end
      const auto json = nlohmann::json::parse(line);
      batches_[{json.at("task"), json.at("line")}] = batch_from_json(json.at("runs"));
      whole += line.size() + 1;
    }
  } catch (const nlohmann::json::exception&) {
    log_warning("{}: a damaged measurement and what follows it is measured again", file_.string());
  }
  taken_up_ = static_cast<int64_t>(batches_.size());
  if (taken_up_ == 0) return;
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

TaskRecords measure_task(const MeasureTask& task, const EvaluationOptions& options, EvaluationEngine& engine,
                         MeasurementStore& store, const EvaluationContext& context) {
  TaskMeasurement measurement(task, options, engine);
  Progress progress({.style = progress_style(context.quiet),
                     .title = "evaluating " + task.name,
                     .unit = "lines",
                     .total = measurement.lines_of_task()});
  TaskRecords records;
  for (int64_t first = 0; first < measurement.lines_of_task(); first += options.batch_size) {
    const size_t rows = measurement.batch(first).size();
    const Batch* known = store.find(task.name, first);
    if (known == nullptr || !covers(*known, task.runs, rows)) {
      store.add(task.name, first, measurement.measure(first));
      known = store.find(task.name, first);
    }
    for (const auto& run : task.runs) {
      const RunRecords& batch = known->at(run.label);
      records[run.label].insert(records[run.label].end(), batch.begin(), batch.end());
    }
    progress.advance(static_cast<int64_t>(rows));
    throw_if_stop_requested(kHowToGoOn);
  }
  progress.finish();
  return records;
}

}  // namespace draftsmith::infer
