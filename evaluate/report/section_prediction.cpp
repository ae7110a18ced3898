#include "evaluate/report/section_prediction.h"

#include <fmt/format.h>

#include "base/html.h"
#include "base/text_table.h"
#include "evaluate/report/run_table.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

struct Measure {
  const char* key;
  const char* header;
};
constexpr Measure kMeasures[] = {{"accuracy", "accuracy"},
                                 {"cross_entropy", "cross entropy"},
                                 {"relative_accuracy", "rel. accuracy"},
                                 {"relative_tv", "rel. TV"}};

std::string value(const ordered_json& model, const char* key) {
  return model.contains(key) ? fixed(model.at(key), 3) : "";
}

std::string heading(const ordered_json& prediction) {
  return fmt::format("next tokens of {} {} ({} positions), teacher-forced", prediction.at("lines").dump(),
                     prediction.value("texts", "references"), prediction.at("positions").dump());
}

}  // namespace

std::string prediction_table(const ordered_json& task) {
  if (!task.contains("prediction")) return "";
  const ordered_json& prediction = task.at("prediction");
  std::vector<Column> columns{{"model", Align::kLeft}};
  for (const Measure& measure : kMeasures) columns.push_back({measure.header});
  TextTable table(std::move(columns));
  for (const auto& [name, model] : prediction.at("models").items()) {
    std::vector<std::string> row{name};
    for (const Measure& measure : kMeasures) row.push_back(value(model, measure.key));
    table.add_row(row);
  }
  return fmt::format("{}: {}\n{}", task.at("name").get<std::string>(), heading(prediction), table.str());
}

std::string prediction_section(const ordered_json& task) {
  if (!task.contains("prediction")) return "";
  const ordered_json& prediction = task.at("prediction");
  std::string html = fmt::format(
      "<h3>How well each drafter predicts</h3>\n<p>{}; relative: to the target.</p>\n<table>", heading(prediction));
  html += "<tr><th>#</th><th>model</th>";
  for (const Measure& measure : kMeasures) html += fmt::format("<th>{}</th>", measure.header);
  html += "</tr>\n";
  size_t index = 0;
  for (const auto& [name, model] : prediction.at("models").items()) {
    html += fmt::format("<tr><td>{}</td><td>{}</td>", index++, escape_html(name));
    for (const Measure& measure : kMeasures) html += fmt::format("<td>{}</td>", value(model, measure.key));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace draftsmith::evaluate
