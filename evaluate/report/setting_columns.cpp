// Columns of the CSV file on quality, speed and acceptance of each setting.
#include "evaluate/report/sections.h"
#include "evaluate/report/versus_beams.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

// Returns a number of the leading score; null if nothing is scored.
ordered_json score_number(const TaskView& view, const SettingResult& setting,
                          double (*number)(const metrics::NamedScore& score)) {
  const auto* score = setting.quality.find(score_style(view.task).name);
  return score == nullptr ? ordered_json() : csv_number(number(*score));
}

// Returns the column of a member of QualityDifference.
template <double QualityDifference::*kMember>
CsvColumn difference_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            return row.quality.difference ? csv_number((*row.quality.difference).*kMember) : ordered_json();
          }};
}

std::vector<CsvColumn> quality_columns() {
  using View = const TaskView&;
  using Row = const SettingResult&;
  using Score = const metrics::NamedScore&;
  return {{"task", [](View view, Row) { return ordered_json(view.task.name); }},
          {"metric", [](View view, Row) { return ordered_json(score_style(view.task).name); }},
          {"quality", [](View view, Row row) { return score_number(view, row, [](Score one) { return one.value; }); }},
          {"quality_low",
           [](View view, Row row) { return score_number(view, row, [](Score one) { return one.interval.low; }); }},
          {"quality_high",
           [](View view, Row row) { return score_number(view, row, [](Score one) { return one.interval.high; }); }},
          {"run", [](View, Row row) { return ordered_json(row.name); }},
          {"method", [](View, Row row) { return ordered_json(row.method); }},
          {"params", [](View, Row row) { return row.params; }},
          difference_column<&QualityDifference::value>("quality_difference"),
          difference_column<&QualityDifference::p_value>("quality_p_value")};
}

// Returns the column of a member of PredictedSpeed.
template <std::optional<double> PredictedSpeed::*kMember>
CsvColumn predicted_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            return row.predicted ? csv_number((*row.predicted).*kMember) : ordered_json();
          }};
}

std::vector<CsvColumn> speed_columns() {
  using View = const TaskView&;
  using Row = const SettingResult&;
  return {{"tokens_per_second", [](View, Row row) { return csv_number(row.speed.tokens_per_second); }},
          {"ms_per_token", [](View, Row row) { return csv_number(row.speed.ms_per_token); }},
          {"decode_ms_per_token", [](View, Row row) { return csv_number(row.speed.decode_ms_per_token); }},
          {"speedup", [](View, Row row) { return csv_number(row.speed.speedup.value); }},
          {"speedup_low", [](View, Row row) { return csv_number(row.speed.speedup.interval.low); }},
          {"speedup_high", [](View, Row row) { return csv_number(row.speed.speedup.interval.high); }},
          {"speedup_total", [](View, Row row) { return csv_number(row.speed.speedup_total.value); }},
          {"speedup_decode", [](View, Row row) { return csv_number(row.speed.speedup_decode.value); }},
          {"speedup_decode_bound", [](View, Row row) { return csv_number(row.speed.speedup_decode_bound); }},
          {"predicted_speedup",
           [](View, Row row) { return row.predicted ? csv_number(row.predicted->speedup) : ordered_json(); }},
          {"accounted_speedup",
           [](View, Row row) { return row.accounted ? csv_number(row.accounted->speedup) : ordered_json(); }},
          {"cost_ratio",
           [](View, Row row) { return row.accounted ? csv_number(row.accounted->cost_ratio) : ordered_json(); }},
          predicted_column<&PredictedSpeed::e_pt_ms>("e_pt_ms"),
          predicted_column<&PredictedSpeed::long_run_ms>("long_run_ms")};
}

// Returns the column of a member of Acceptance.
template <auto kMember>
CsvColumn acceptance_column(const std::string& header) {
  return {header, [](const TaskView&, const SettingResult& row) {
            if constexpr (std::is_same_v<decltype(kMember), double Acceptance::*>) {
              return csv_number(row.acceptance.*kMember);
            } else {
              return ordered_json(row.acceptance.*kMember);
            }
          }};
}

std::vector<CsvColumn> acceptance_columns() {
  return {acceptance_column<&Acceptance::alpha>("alpha"),
          {"alpha_conditional",
           [](const TaskView&, const SettingResult& row) {
             return row.acceptance.alpha_conditional ? ordered_json(*row.acceptance.alpha_conditional) : ordered_json();
           }},
          acceptance_column<&Acceptance::acceptance_rate>("acceptance_rate"),
          acceptance_column<&Acceptance::tokens_per_target_run>("tokens_per_target_run"),
          acceptance_column<&Acceptance::fallback_rate>("fallback_rate"),
          acceptance_column<&Acceptance::rollback_rate>("rollback_rate"),
          acceptance_column<&Acceptance::target_runs>("target_runs"),
          acceptance_column<&Acceptance::draft_runs>("draft_runs"),
          acceptance_column<&Acceptance::target_runs_per_output>("target_runs_per_output"),
          acceptance_column<&Acceptance::draft_runs_per_output>("draft_runs_per_output"),
          acceptance_column<&Acceptance::tokens>("tokens")};
}

}  // namespace

std::vector<CsvColumn> setting_columns() {
  std::vector<CsvColumn> columns = quality_columns();
  for (const auto& more : {speed_columns(), versus_beam_columns(), acceptance_columns()}) {
    columns.insert(columns.end(), more.begin(), more.end());
  }
  return columns;
}

}  // namespace draftsmith::evaluate
