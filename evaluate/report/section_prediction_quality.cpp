// Quality of the drafters' predictions, teacher-forced on a task's texts: measures of Nair et al. 2024, table 1
// (methods.md §3).
#include <fmt/format.h>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

constexpr int kDigits = 3;

std::vector<Part> prediction_parts(const TaskView& view, Form form) {
  if (!view.task.prediction) return {};
  const TaskPrediction& prediction = *view.task.prediction;
  const std::string heading = fmt::format("next tokens of {} {} ({} positions), teacher-forced", prediction.lines,
                                          prediction.texts, prediction.positions);
  Part part{.caption = form == Form::kFull ? heading + "; relative: to the target." : view.task.name + ": " + heading,
            .table = Table({{"model", Align::kLeft},
                            {"accuracy", Align::kRight, "share of tokens that the model finds most likely"},
                            {"cross entropy", Align::kRight, "nats a token"},
                            {"rel. accuracy", Align::kRight, "share of tokens on which drafter and target agree"},
                            {"rel. TV", Align::kRight, "total variation between drafter and target"}})};
  for (const auto& [name, model] : prediction.models) {
    part.table.add_row({name, fixed(model.accuracy, kDigits), fixed(model.cross_entropy, kDigits),
                        fixed(model.relative_accuracy, kDigits), fixed(model.relative_tv, kDigits)});
  }
  return {part};
}

// Returns the column of a member of PredictionResult.
template <auto kMember>
CsvColumn prediction_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            return row.prediction ? csv_number((*row.prediction).*kMember) : nlohmann::ordered_json();
          }};
}

}  // namespace

Section prediction_quality_section() {
  return {.title = "How well each drafter predicts",
          .parts = prediction_parts,
          .csv = {prediction_column<&PredictionResult::accuracy>("drafter_accuracy"),
                  prediction_column<&PredictionResult::cross_entropy>("drafter_cross_entropy"),
                  prediction_column<&PredictionResult::relative_accuracy>("drafter_relative_accuracy"),
                  prediction_column<&PredictionResult::relative_tv>("drafter_relative_tv")}};
}

}  // namespace draftsmith::evaluate
