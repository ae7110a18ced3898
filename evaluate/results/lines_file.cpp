#include "evaluate/results/lines_file.h"

#include <nlohmann/json.hpp>

namespace draftsmith::evaluate {

std::string lines_jsonl(const MeasuredTask& task) {
  std::string text;
  for (const auto& [label, records] : task.records) {
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
      if (records[line].failure) json["failure"] = *records[line].failure;
      text += json.dump() + "\n";
    }
  }
  return text;
}

}  // namespace draftsmith::evaluate
