#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

std::string text_of_cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string results_csv(const Results& results) {
  std::vector<CsvColumn> columns;
  for (const Section& section : sections()) columns.insert(columns.end(), section.csv.begin(), section.csv.end());
  std::vector<Column> headers;
  for (const CsvColumn& column : columns) headers.push_back({column.header});
  Table table(std::move(headers));
  for (const TaskResult& task : results.tasks) {
    for (const SettingResult* setting : task.rows()) {
      std::vector<std::string> cells;
      for (const CsvColumn& column : columns) cells.push_back(text_of_cell(column.value({results, task}, *setting)));
      table.add_row(std::move(cells));
    }
  }
  return table.csv();
}

}  // namespace draftsmith::evaluate
