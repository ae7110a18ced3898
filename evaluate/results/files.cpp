#include "evaluate/results/lines_file.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

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

}  // namespace

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
