// Files of an evaluation. lines.jsonl has tokens, times and scores of each line under each setting, from which anyone
// can recompute the speedups, and compare two evaluations line by line.
#include "base/files.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "evaluate/report/report.h"
#include "evaluate/results/summary.h"

namespace draftsmith::evaluate {
namespace {

void add_seconds(const std::string& prefix, const std::vector<infer::PhaseSeconds>& times,
                 nlohmann::ordered_json& json) {
  json[prefix + "seconds"] = nlohmann::ordered_json::array();
  json[prefix + "decode_seconds"] = nlohmann::ordered_json::array();
  for (const infer::PhaseSeconds& seconds : times) {
    json[prefix + "seconds"].push_back(seconds.total());
    json[prefix + "decode_seconds"].push_back(seconds.decode());
  }
}

// Returns a JSON object a line for each line and setting of the task: `task`, `run` (the setting's own name, also where
// a choice gave it another), `line` (from 0), `turn`, `tokens`, and the lists `seconds` and `decode_seconds` with one
// number a repetition, empty where the line was not timed. `baseline_seconds` and `baseline_decode_seconds` are the
// baseline's beside them, absent from baselines. Scored tasks have `statistics`, whose sums the metric scores
// (metrics::LineStatistics).
std::string lines_jsonl(const MeasuredTask& task) {
  std::string text;
  for (const auto& [label, records] : task.records) {
    const auto statistics = task.statistics.find(label);
    for (size_t line = 0; line < records.size(); ++line) {
      nlohmann::ordered_json json{{"task", task.task->name},
                                  {"run", label},
                                  {"line", line},
                                  {"turn", records[line].turn},
                                  {"tokens", records[line].tokens()}};
      add_seconds("", records[line].repetitions, json);
      if (!records[line].baseline.empty()) add_seconds("baseline_", records[line].baseline, json);
      if (statistics != task.statistics.end() && statistics->second.width > 0) {
        json["statistics"] = statistics->second.line(static_cast<int64_t>(line));
      }
      if (records[line].failure) json["failure"] = *records[line].failure;
      text += json.dump() + "\n";
    }
  }
  return text;
}

}  // namespace

std::string hypotheses_file(const TaskOptions& task, const std::string& row) {
  return fmt::format("hyp/{}.{}.txt", file_safe(task.name), file_safe(row));
}

void write_evaluation(const Results& results, const std::vector<MeasuredTask>& tasks,
                      const std::filesystem::path& out_dir) {
  make_directories(out_dir / "hyp");
  for (const auto& task : tasks) {
    const auto write = [&](const std::string& row, const std::string& label) {
      std::string lines;
      for (const auto& line : task.hypotheses.at(label)) lines += line + "\n";
      write_file_atomic(out_dir / hypotheses_file(*task.task, row), lines);
    };
    for (const Setting& setting : task.settings) {
      if (task.has_row(setting)) write(setting.label, setting.label);
    }
    for (const ChosenSetting& chosen : task.chosen) {
      write(chosen_label(task.setting(chosen.setting).group, chosen.max_drop), chosen.setting);
    }
  }
  std::string lines;
  for (const auto& task : tasks) lines += lines_jsonl(task);
  write_file_atomic(out_dir / "lines.jsonl", lines);
  write_file_atomic(out_dir / "results.csv", results_csv(results));
  write_file_atomic(out_dir / "report.html", report_html(results));
  write_json(out_dir / "results.json", to_json(results));
}

}  // namespace draftsmith::evaluate
