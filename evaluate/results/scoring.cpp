#include "evaluate/results/scoring.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/logging.h"
#include "base/sha256.h"
#include "evaluate/measure/failed_settings.h"
#include "evaluate/measure/failures.h"
#include "evaluate/suite/task_metric.h"
#include "metrics/registry.h"

namespace draftsmith::evaluate {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTriedLines = 2;
constexpr uintmax_t kLargestScript = 10'000'000;  // bytes

bool runs_command(const TaskOptions& task) {
  return task.metric.kind() == metrics::Command::kName;
}

// Returns a key of the files that a command names, so that a script that was changed is asked again.
std::string files_of(const std::string& command) {
  std::istringstream words(command);
  std::string key;
  for (std::string word; words >> word;) {
    std::error_code none;
    const bool small = fs::is_regular_file(word, none) && fs::file_size(word, none) <= kLargestScript;
    if (small && !none) key += sha256(read_file(word));
  }
  return key;
}

// Scores of the settings of a task.
class Scoring {
 public:
  Scoring(const MeasuredTask& task, MeasurementStore& store)
      : task_(task), metric_(task_metric(*task.task)), store_(store) {}

  const metrics::Metric& metric() const { return *metric_; }

  // Returns the statistics of hypotheses, which are computed once for all settings with the same.
  const metrics::LineStatistics& of(const std::vector<std::string>& texts) {
    const auto found = known_.find(texts);
    if (found != known_.end()) return found->second;
    return known_[texts] = runs_command(*task_.task) ? kept(texts) : statistics_of(*metric_, texts, task_.data);
  }

 private:
  // Returns what the command answered, now or in an earlier run.
  metrics::LineStatistics kept(const std::vector<std::string>& texts) {
    const std::string asked = metric_->signature(task_.data.references) + files_of(task_.task->metric.command) +
                              nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const std::string name = measurement_name({"scores", task_.key, sha256(asked)});
    if (store_.has(name)) return {.width = 2, .values = store_.at(name).get<std::vector<double>>()};
    metrics::LineStatistics statistics = statistics_of(*metric_, texts, task_.data);
    store_.add(name, statistics.values);
    return statistics;
  }

  const MeasuredTask& task_;
  std::unique_ptr<const metrics::Metric> metric_;
  MeasurementStore& store_;
  std::map<std::vector<std::string>, metrics::LineStatistics> known_;
};

}  // namespace

metrics::LineStatistics statistics_of(const metrics::Metric& metric, const std::vector<std::string>& hypotheses,
                                      const TaskData& data) {
  const auto first = std::ssize(hypotheses);
  const metrics::References references(data.references.begin(),
                                       data.references.begin() + std::min(first, std::ssize(data.references)));
  const std::span<const std::string> sources(data.plain_sources);
  return metric.segment_statistics({.hypotheses = hypotheses,
                                    .references = references,
                                    .sources = sources.first(std::min(hypotheses.size(), sources.size()))});
}

void try_command(const MeasuredTask& measured) {
  if (!runs_command(*measured.task)) return;
  log_info("task {} is scored by the command: {}", measured.task->name, measured.task->metric.command);
  std::vector<std::string> hypotheses;
  for (int64_t line = 0; line < std::min(kTriedLines, measured.data.lines()); ++line) {
    hypotheses.push_back(measured.data.references[static_cast<size_t>(line)].front());
  }
  try {
    statistics_of(*task_metric(*measured.task), hypotheses, measured.data);
  } catch (const RunError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) {
      problem.where =
          fmt::format("task {}, tried on {} lines: {}", measured.task->name, hypotheses.size(), problem.where);
    }
    throw UserError(std::move(problems));
  }
}

void score_hypotheses(MeasuredTask& measured, const Engine& engine, MeasurementStore& store) {
  Scoring scoring(measured, store);
  std::map<std::string, std::string> failed;
  for (const auto& [label, records] : measured.records) {
    auto& lines = measured.hypotheses[label];
    std::vector<std::string> texts;
    for (const LineRecord& record : records) {
      lines.push_back(scoring.metric().line_of(engine.text(record.ids, measured.task->ids)));
      texts.push_back(scoring.metric().text_of(lines.back()));
    }
    const auto score = [&] { measured.statistics[label] = scoring.of(texts); };
    if (label == greedy_baseline().label) {
      score();  // all others are compared with it
    } else if (const auto message = failure_of(score)) {
      log_warning("{} failed in the scoring of {}: {}", label, measured.task->name, *message);
      failed[label] = *message;
    }
  }
  remove_failed(failed, "scoring", measured);
}

}  // namespace draftsmith::evaluate
