// Quality, speed and acceptance of each setting of a task, with notes on what needs attention.
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

bool known(const metrics::Interval& interval) {
  return std::isfinite(interval.low) && std::isfinite(interval.high);
}

// "1.93 ±0.02", or on pages "1.93 [1.91, 1.95]".
std::string with_interval(double value, const metrics::Interval& interval, int digits, Form form) {
  const std::string text = fixed(value, digits);
  if (text.empty()) return text;
  if (!known(interval)) return form == Form::kFull ? text : "";
  if (form == Form::kBrief) return fmt::format("{} ±{:.{}f}", text, (interval.high - interval.low) / 2, digits);
  return fmt::format("{} [{:.{}f}, {:.{}f}]", text, interval.low, digits, interval.high, digits);
}

std::string quality(const SettingResult& setting, const ScoreStyle& score, Form form) {
  const metrics::NamedScore* found = setting.quality.find(score.name);
  return found == nullptr ? "" : with_interval(found->value, found->interval, score.digits, form);
}

std::string difference(const SettingResult& setting, int digits) {
  return setting.quality.difference ? fixed(setting.quality.difference->value, digits) : "";
}

std::string theory(const SettingResult& setting) {
  return setting.predicted ? fixed(setting.predicted->speedup, 2) : "";
}

// Runs of target and drafter for each output (Nair et al. 2024, Table 5).
std::string runs_text(const Acceptance& acceptance) {
  const std::string drafter = fixed(acceptance.draft_runs_per_output, 1);
  const std::string target = fixed(acceptance.target_runs_per_output, 1);
  return drafter.empty() || drafter == "0.0" ? target : target + "+" + drafter;
}

// Whether the small model decodes until it falls back to the large one.
bool falls_back(const SettingResult& setting) {
  return setting.method == "bild" || setting.params.contains("rollback");
}

Table brief_table(const TaskResult& task) {
  const ScoreStyle score = score_style(task);
  const auto rows = task.rows();
  const bool fallbacks = std::any_of(rows.begin(), rows.end(), [](const SettingResult* setting) {
    return falls_back(*setting) && !fixed(setting->acceptance.fallback_rate, 3).empty();
  });
  Table table({{"run", Align::kLeft},
               {score.name},
               {"diff"},
               {"speedup"},
               {"decode"},
               {"theory"},
               {"runs"},
               {"tok/run"},
               {"alpha"},
               {"fallb"},
               {"rollb"}});
  for (const SettingResult* setting : rows) {
    const SpeedResult& speed = setting->speed;
    const Acceptance& acceptance = setting->acceptance;
    const bool bild = falls_back(*setting);
    table.add_row({setting->name, quality(*setting, score, Form::kBrief), difference(*setting, score.digits),
                   with_interval(speed.speedup.value, speed.speedup.interval, 2, Form::kBrief),
                   fixed(speed.speedup_decode.value, 2), theory(*setting),
                   fallbacks ? "" : runs_text(acceptance),  // no room for both, and fallb tells it of BiLD
                   fixed(acceptance.tokens_per_target_run, 2), fixed(acceptance.alpha, 3),
                   bild ? fixed(acceptance.fallback_rate, 3) : "", bild ? fixed(acceptance.rollback_rate, 3) : ""});
    if (setting == &task.baseline) table.add_rule();
  }
  table.drop_empty_columns();
  return table;
}

Table full_table(const TaskResult& task) {
  const ScoreStyle score = score_style(task);
  Table table({{"#"},
               {"run", Align::kLeft},
               {score.name},
               {"difference"},
               {"p"},
               {"speedup"},
               {"total"},
               {"decode"},
               {"theory"},
               {"counts say"},
               {"tokens/run"},
               {"alpha"},
               {"accepted"},
               {"fallback"},
               {"rollback"},
               {"target runs"},
               {"draft runs"},
               {"tokens/s"}});
  size_t index = 0;
  for (const SettingResult* setting : task.rows()) {
    const SpeedResult& speed = setting->speed;
    const Acceptance& acceptance = setting->acceptance;
    table.add_row({std::to_string(index++), setting->name, quality(*setting, score, Form::kFull),
                   difference(*setting, score.digits),
                   setting->quality.difference ? fixed(setting->quality.difference->p_value, 3) : "",
                   with_interval(speed.speedup.value, speed.speedup.interval, 2, Form::kFull),
                   fixed(speed.speedup_total.value, 2), fixed(speed.speedup_decode.value, 2), theory(*setting),
                   setting->predicted ? fixed(setting->predicted->speedup_from_counts, 2) : "",
                   fixed(acceptance.tokens_per_target_run, 3), fixed(acceptance.alpha, 3),
                   fixed(acceptance.acceptance_rate, 3), fixed(acceptance.fallback_rate, 3),
                   fixed(acceptance.rollback_rate, 3), fixed(acceptance.target_runs_per_output, 1),
                   fixed(acceptance.draft_runs_per_output, 1), fixed(speed.tokens_per_second, 0)});
  }
  table.drop_empty_columns();
  return table;
}

void add_brief_notes(const SettingResult& setting, std::vector<std::string>& notes) {
  const std::string& name = setting.name;
  if (setting.measurement_error) notes.push_back(fmt::format("! {}: {}", name, *setting.measurement_error));
  if (const auto& exactness = setting.exactness; exactness && exactness->lossless && exactness->differing_lines > 0) {
    const bool rounding = exactness->explained_by_rounding.value_or(false);
    notes.push_back(fmt::format("{} {}: {} of {} lines differ from greedy decoding, largest margin {:.2g}: {}",
                                rounding ? " " : "!", name, exactness->differing_lines, exactness->lines,
                                exactness->largest_margin.value_or(NAN),
                                rounding ? "rounding" : "more than rounding explains"));
  }
  if (const auto& chosen = setting.chosen) {
    notes.push_back(fmt::format("  {}: {}, chosen on {}{}", name, chosen->setting, chosen->on,
                                chosen->allowed ? "" : " (no setting lost so little; this one lost least)"));
  }
}

void add_full_notes(const SettingResult& setting, std::vector<std::string>& notes) {
  const std::string& name = setting.name;
  if (setting.measurement_error) notes.push_back(fmt::format("! {}: {}", name, *setting.measurement_error));
  if (const auto& chosen = setting.chosen) {
    notes.push_back(fmt::format("{}: {} chosen on {} for at most {:g} points lost there (it lost {:.2f}).", name,
                                chosen->setting, chosen->on, chosen->max_drop, chosen->drop_there));
  }
  if (const auto& exactness = setting.exactness; exactness && exactness->differing_lines > 0) {
    notes.push_back(fmt::format("{}: {} of {} lines differ from greedy decoding{}.", name, exactness->differing_lines,
                                exactness->lines, exactness->lossless ? ", though the method is lossless" : ""));
  }
}

std::string drafter_note(const std::string& name, const DrafterResult& drafter) {
  std::string note = fmt::format("Drafter {}: cost ratio c = {}", name, fixed(drafter.cost_ratio, 3));
  if (const auto& alpha = drafter.alpha_forced) {
    note += fmt::format(", alpha_forced {} at T = 0 and {} at T = 1", fixed(alpha->temperature_0, 3),
                        fixed(alpha->temperature_1, 3));
  }
  if (drafter.target_step_seconds) {
    note += "; a target step of 1, 2, … tokens takes";
    for (const double seconds : *drafter.target_step_seconds) note += fmt::format(" {:.2f}", seconds * 1000);
    note += " ms";
  }
  return note + ".";
}

std::string brief_caption(const TaskResult& task) {
  const std::string cut = task.cut_sources > 0 ? fmt::format(", {} sources cut", task.cut_sources) : "";
  return fmt::format("{} ({} lines{}, greedy {} tokens/s)\n{}", task.name, task.lines, cut,
                     fixed(task.baseline.speed.tokens_per_second, 0), task.signature);
}

std::string full_caption(const TaskResult& task) {
  const std::string cut =
      task.cut_sources > 0
          ? fmt::format(" ({} sources were longer than max_source_tokens and were cut)", task.cut_sources)
          : "";
  return fmt::format("{} lines{}, {}; 95 % bootstrap intervals in brackets; runs are means over outputs.", task.lines,
                     cut, task.signature);
}

std::vector<Part> setting_parts(const TaskView& view, Form form) {
  const TaskResult& task = view.task;
  const bool full = form == Form::kFull;
  Part part{.caption = full ? full_caption(task) : brief_caption(task),
            .table = full ? full_table(task) : brief_table(task)};
  for (const SettingResult& setting : task.settings) {
    full ? add_full_notes(setting, part.notes) : add_brief_notes(setting, part.notes);
  }
  if (full) {
    for (const auto& [name, drafter] : task.drafters) part.notes.push_back(drafter_note(name, drafter));
  }
  return {part};
}

// A number of the leading score; null if nothing is scored.
ordered_json score_number(const TaskView& view, const SettingResult& setting,
                          double (*number)(const metrics::NamedScore& score)) {
  const auto* score = setting.quality.find(score_style(view.task).name);
  return score == nullptr ? ordered_json() : csv_number(number(*score));
}

// A column of a member of QualityDifference.
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

// A column of a member of PredictedSpeed.
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
          {"speedup_decode_bound", [](View, Row row) { return csv_number(row.speed.bound); }},
          {"predicted_speedup",
           [](View, Row row) { return row.predicted ? csv_number(row.predicted->speedup) : ordered_json(); }},
          predicted_column<&PredictedSpeed::cost_ratio>("cost_ratio"),
          predicted_column<&PredictedSpeed::e_pt_ms>("e_pt_ms"),
          predicted_column<&PredictedSpeed::long_run_ms>("long_run_ms")};
}

// A column of a member of Acceptance.
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

Section settings_section() {
  Section section{.title = "", .parts = setting_parts, .csv = quality_columns()};
  for (const auto& more : {speed_columns(), acceptance_columns()}) {
    section.csv.insert(section.csv.end(), more.begin(), more.end());
  }
  return section;
}

}  // namespace draftsmith::evaluate
