// Files of an evaluation. lines.jsonl has tokens, times and scores of each line under each setting, from which anyone
// can recompute the speedups, and compare two evaluations line by line.
#include "base/files.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "evaluate/report/report.h"
#include "evaluate/results/summary.h"

namespace draftsmith::evaluate {
namespace {

// Adds the line of a file to its setting. Errors: nlohmann::json::exception.
void add_line(const nlohmann::json& entry, Lines& lines) {
  SettingLines& setting = lines[{entry.at("task"), entry.at("run")}];
  LineRecord& record = setting.records.emplace_back();
  entry.at("turn").get_to(record.turn);
  entry.at("tokens").get_to(record.stats.emitted);
  const auto& decode = entry.at("decode_seconds");
  for (size_t i = 0; i < entry.at("seconds").size(); ++i) {
    const double own = decode.at(i);
    record.repetitions.push_back({.prefill = entry.at("seconds").at(i).get<double>() - own, .verify = own});
  }
  if (entry.contains("failure")) record.failure = entry.at("failure").get<std::string>();
  if (!entry.contains("statistics")) return;
  const auto statistics = entry.at("statistics").get<std::vector<double>>();
  setting.statistics.width = std::ssize(statistics);
  setting.statistics.values.insert(setting.statistics.values.end(), statistics.begin(), statistics.end());
}

// Returns a JSON object a line for each line and setting of the task: `task`, `run` (the setting's own name, also where
// a choice gave it another), `line` (from 0), `turn`, `tokens`, and the lists `seconds` and `decode_seconds` with one
// number a repetition, empty where the line was not timed. Scored tasks have `statistics`, whose sums the metric scores
// (metrics::LineStatistics).
//
// speedup = (Σ tokens / Σ median seconds) of the run over the same of its baseline, over the timed lines;
// speedup_decode takes the decode_seconds of the median repetitions (evaluate/measure/speed.h).
std::string lines_jsonl(const MeasuredTask& task) {
  std::string text;
  for (const auto& [label, records] : task.records) {
    const auto statistics = task.statistics.find(label);
    for (size_t line = 0; line < records.size(); ++line) {
      nlohmann::ordered_json json{{"task", task.task->name},
                                  {"run", label},
                                  {"line", line},
                                  {"turn", records[line].turn},
                                  {"tokens", records[line].tokens()},
                                  {"seconds", nlohmann::ordered_json::array()},
                                  {"decode_seconds", nlohmann::ordered_json::array()}};
      for (const infer::PhaseSeconds& seconds : records[line].repetitions) {
        json["seconds"].push_back(seconds.total());
        json["decode_seconds"].push_back(seconds.decode());
      }
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

std::string hypotheses_file(const TaskOptions& task, const SettingRow& row) {
  return fmt::format("hyp/{}.{}.txt", file_safe(task.name), file_safe(row.label));
}

void write_evaluation(const Results& results, const std::vector<MeasuredTask>& tasks,
                      const std::filesystem::path& out_dir) {
  make_directories(out_dir / "hyp");
  for (const auto& task : tasks) {
    for (const auto& row : task.rows) {
      std::string lines;
      for (const auto& line : task.hypotheses.at(row.settings.label)) lines += line + "\n";
      write_file_atomic(out_dir / hypotheses_file(*task.task, row), lines);
    }
  }
  std::string lines;
  for (const auto& task : tasks) lines += lines_jsonl(task);
  write_file_atomic(out_dir / "lines.jsonl", lines);
  for (const auto& rates : results.match_rates) write_match_rates(rates, out_dir);
  for (const auto& curve : results.engagement) write_engagement(curve, out_dir);
  write_file_atomic(out_dir / "results.csv", results_csv(results));
  write_file_atomic(out_dir / "report.html", report_html(results));
  write_json(out_dir / "results.json", to_json(results));
}

Lines load_lines(const std::filesystem::path& file) {
  Lines lines;
  std::ifstream input(file);
  int64_t number = 0;
  for (std::string text; std::getline(input, text);) {
    ++number;
    try {
      add_line(nlohmann::json::parse(text), lines);
    } catch (const nlohmann::json::exception& error) {
      throw UserError({.where = fmt::format("{}:{}", file.string(), number),
                       .what = "is no line of an evaluation",
                       .expected = "an object with task, run, turn, tokens, seconds and decode_seconds",
                       .found = error.what(),
                       .hint = "evaluate again, or remove the file to compare without it"});
    }
  }
  return lines;
}

}  // namespace draftsmith::evaluate
