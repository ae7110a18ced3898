#include "evaluate/report/report.h"
#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

std::string text_of_cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<CsvColumn> csv_columns() {
  std::vector<CsvColumn> columns;
  for (const Section& section : sections()) columns.insert(columns.end(), section.csv.begin(), section.csv.end());
  return columns;
}

}  // namespace

nlohmann::ordered_json results_rows(const Results& results) {
  auto rows = nlohmann::ordered_json::array();
  const std::vector<CsvColumn> columns = csv_columns();
  for (const TaskResult& task : results.tasks) {
    for (const SettingResult* setting : task.rows()) {
      auto row = nlohmann::ordered_json::object();
      for (const CsvColumn& column : columns) row[column.header] = column.value({results, task}, *setting);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string results_csv(const Results& results) {
  std::vector<Column> headers;
  for (const CsvColumn& column : csv_columns()) headers.push_back({column.header});
  Table table(std::move(headers));
  for (const nlohmann::ordered_json& row : results_rows(results)) {
    std::vector<std::string> cells;
    for (const auto& cell : row) cells.push_back(text_of_cell(cell));
    table.add_row(std::move(cells));
  }
  return table.csv();
}

}  // namespace draftsmith::evaluate
