// Table of quality, speed and acceptance of each setting of a task, with notes on errors, differences and choices.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "evaluate/report/busy_note.h"
#include "evaluate/report/check_notes.h"
#include "evaluate/report/drafter_note.h"
#include "evaluate/report/sections.h"
#include "evaluate/report/versus_beams.h"

namespace draftsmith::evaluate {
namespace {

bool known(const metrics::Interval& interval) {
  return std::isfinite(interval.low) && std::isfinite(interval.high);
}

// Returns a number with its interval: "1.93 ±0.02", on pages "1.93 [1.91, 1.95]".
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

std::string accounted(const SettingResult& setting) {
  return setting.accounted ? fixed(setting.accounted->speedup, 2) : "";
}

// Mark of an alpha over tokens that the window rule chose to draft.
constexpr const char* kConditional = "†";

std::string alpha(const Acceptance& acceptance) {
  const std::string text = fixed(acceptance.alpha, 3);
  return !text.empty() && acceptance.alpha_conditional.value_or(false) ? text + kConditional : text;
}

// Returns the runs of target and drafter per output (Nair et al. 2024, table 5).
std::string runs_text(const Acceptance& acceptance) {
  const std::string drafter = fixed(acceptance.draft_runs_per_output, 1);
  const std::string target = fixed(acceptance.target_runs_per_output, 1);
  return drafter.empty() || drafter == "0.0" ? target : target + "+" + drafter;
}

// Setting whose row is written, with the table that the row is in.
struct TableRow {
  const SettingResult& setting;
  const ScoreStyle& score;
  Form form;
  bool fallbacks;  // some setting of the task has a fallback rate

  // Returns digits behind the point for the table's form.
  int digits(int brief, int full) const { return form == Form::kBrief ? brief : full; }
  // Returns a rate of fallbacks or rollbacks; empty for settings that do not fall back.
  std::string rate(double value) const { return setting.falls_back() ? fixed(value, 3) : ""; }
};

// Column of the table of settings. Tables of a form lack the columns without a header for it.
struct SettingColumn {
  std::string brief;
  std::string full;
  std::function<std::string(const TableRow& row)> cell;
  std::string title = {};  // of pages: what the column is
  Align align = Align::kRight;
  bool best_is_lowest = false;  // of pages: sorting begins with the lowest number

  const std::string& header(Form form) const { return form == Form::kBrief ? brief : full; }
};

std::vector<SettingColumn> quality_and_speed_cells(const ScoreStyle& style) {
  const std::string& score = style.name;
  return {
      {"run", "setting", [](const TableRow& row) { return row.setting.name; }, "run", Align::kLeft},
      {score, score_words(score), [](const TableRow& row) { return quality(row.setting, row.score, row.form); },
       score + ", with its 95 % interval" + (style.lower_is_better ? "; lower is better" : ""), Align::kRight,
       style.lower_is_better},
      {"diff", "difference", [](const TableRow& row) { return difference(row.setting, row.score.digits); },
       "diff: from the setting's own baseline", Align::kRight, style.lower_is_better},
      {"", "p-value",
       [](const TableRow& row) {
         return row.setting.quality.difference ? fixed(row.setting.quality.difference->p_value, 3) : "";
       },
       "p: of the difference, by the paired bootstrap"},
      {"speedup", "speedup",
       [](const TableRow& row) {
         const Ratio& speedup = row.setting.speed.speedup;
         return with_interval(speedup.value, speedup.interval, 2, row.form);
       },
       "speedup: tokens a second over those of the baseline"},
      {"", "speedup a line", [](const TableRow& row) { return fixed(row.setting.speed.speedup_total.value, 2); },
       "speedup_total: time a line, whatever the outputs' lengths"},
      {"decode", "decoding alone", [](const TableRow& row) { return fixed(row.setting.speed.speedup_decode.value, 2); },
       "decode: speedup without encoder and prompt"},
      {"theory", "predicted", [](const TableRow& row) { return theory(row.setting); },
       "theory: predicts the speedup of decoding alone from alpha and step times"},
      {"acct", "accounted", [](const TableRow& row) { return accounted(row.setting); },
       "acct: the speedup that the counted runs explain"},
  };
}

std::vector<SettingColumn> acceptance_cells() {
  return {
      // Without room for both, the fallback rate tells about the runs of BiLD.
      {"runs", "", [](const TableRow& row) { return row.fallbacks ? "" : runs_text(row.setting.acceptance); }},
      {"tok/run", "tokens a target run",
       [](const TableRow& row) { return fixed(row.setting.acceptance.tokens_per_target_run, row.digits(2, 3)); },
       "tok/run: new tokens for each run of the target"},
      {"alpha", "acceptance rate", [](const TableRow& row) { return alpha(row.setting.acceptance); },
       "alpha: expected overlap of both models' distributions"},
      {"", "drafted tokens kept", [](const TableRow& row) { return fixed(row.setting.acceptance.acceptance_rate, 3); },
       "acceptance_rate: share of all drafted tokens"},
      {"fallb", "target steps in", [](const TableRow& row) { return row.rate(row.setting.acceptance.fallback_rate); },
       "fallb: fallbacks a new token (BiLD)"},
      {"rollb", "takes back", [](const TableRow& row) { return row.rate(row.setting.acceptance.rollback_rate); },
       "rollb: rollbacks a new token (BiLD)"},
      {"", "target runs", [](const TableRow& row) { return fixed(row.setting.acceptance.target_runs_per_output, 1); },
       "target_runs_per_output"},
      {"", "drafter runs", [](const TableRow& row) { return fixed(row.setting.acceptance.draft_runs_per_output, 1); },
       "draft_runs_per_output"},
      {"", "tokens a second", [](const TableRow& row) { return fixed(row.setting.speed.tokens_per_second, 0); },
       "tokens_per_second"},
  };
}

// Returns the columns of speedups beside the task's beam searches.
std::vector<SettingColumn> versus_beam_cells(const TaskResult& task) {
  std::vector<SettingColumn> columns;
  for (const int64_t beams : beams_of(task)) {
    const std::string header = fmt::format("vs beam {}", beams);
    columns.push_back({header, header,
                       [beams](const TableRow& row) {
                         const BeamSpeedup* versus = versus_beams(row.setting, beams);
                         return versus == nullptr ? "" : fixed(versus->speedup.value, 2);
                       },
                       fmt::format("tokens a second over those of beam search with {} beams", beams)});
  }
  return columns;
}

// Returns the columns of a form's tables.
std::vector<SettingColumn> columns_of(const TaskResult& task, const ScoreStyle& score, Form form) {
  std::vector<SettingColumn> columns = quality_and_speed_cells(score);
  for (SettingColumn& column : versus_beam_cells(task)) columns.push_back(std::move(column));
  for (SettingColumn& column : acceptance_cells()) columns.push_back(std::move(column));
  std::erase_if(columns, [&](const SettingColumn& column) { return column.header(form).empty(); });
  return columns;
}

Table settings_table(const TaskResult& task, Form form) {
  const ScoreStyle score = score_style(task);
  const auto settings = task.rows();
  const bool fallbacks = std::any_of(settings.begin(), settings.end(), [](const SettingResult* setting) {
    return setting->falls_back() && !fixed(setting->acceptance.fallback_rate, 3).empty();
  });
  const std::vector<SettingColumn> columns = columns_of(task, score, form);
  std::vector<Column> headers;
  for (const SettingColumn& column : columns) {
    headers.push_back({column.header(form), column.align, column.title, column.best_is_lowest});
  }
  Table table(std::move(headers));
  for (size_t i = 0; i < settings.size(); ++i) {
    const TableRow row{*settings[i], score, form, fallbacks};
    std::vector<std::string> cells;
    for (const SettingColumn& column : columns) cells.push_back(column.cell(row));
    table.add_row(std::move(cells));
    if (form == Form::kBrief && i == 0) table.add_rule();
  }
  table.drop_empty_columns();
  return table;
}

std::string error_note(const SettingResult& setting, Form /*form*/) {
  return setting.measurement_error ? fmt::format("! {}: {}", setting.name, *setting.measurement_error) : "";
}

std::string chosen_note(const SettingResult& setting, Form form) {
  if (!setting.chosen) return "";
  const ChosenSetting& chosen = *setting.chosen;
  if (form == Form::kFull) {
    return fmt::format("{}: {} chosen on {} for at most {:g} points lost there (it lost {:.2f}).", setting.name,
                       chosen.setting, chosen.on, chosen.max_drop, chosen.drop_there);
  }
  return fmt::format("  {}: {}, chosen on {}{}", setting.name, chosen.setting, chosen.on,
                     chosen.allowed ? "" : " (no setting lost so little; this one lost least)");
}

// Returns the distance from 1 that the interval of a baseline beside itself reaches.
double noise_of(const Ratio& repeated) {
  return std::max(std::abs(repeated.interval.low - 1), std::abs(repeated.interval.high - 1));
}

// Returns the noise floor, from a baseline that was measured twice.
std::string noise_note(const SettingResult& setting, Form form) {
  const Ratio& speedup = setting.speed.speedup;
  if (!setting.repeats || !known(speedup.interval)) return "";
  const bool reads_one = speedup.interval.low <= 1 && speedup.interval.high >= 1;
  const std::string name = fmt::format("{} {}", setting.name, with_interval(speedup.value, speedup.interval, 2, form));
  if (reads_one) {
    return fmt::format("  {}: noise floor, differences of speedup below {:.2f} are none", name, noise_of(speedup));
  }
  return fmt::format("! {}: the same decoding twice differs by more than its interval; something disturbed the machine",
                     name);
}

// Returns the speed a line where outputs are longer or shorter than the baseline's.
std::string lengths_note(const SettingResult& setting, Form form) {
  const Speed& speed = setting.speed;
  if (!speed.lengths_differ() || !known(speed.speedup_total.interval)) return "";
  return fmt::format("  {}: {} times as fast a line, its outputs have {:+.0f} % of tokens", setting.name,
                     with_interval(speed.speedup_total.value, speed.speedup_total.interval, 2, form),
                     100 * (*speed.length_ratio - 1));
}

// Adds the notes of a setting, in the order of the form.
void add_notes(const SettingResult& setting, Form form, std::vector<std::string>& notes) {
  using Note = std::string (*)(const SettingResult&, Form);
  constexpr std::array<Note, 7> kBriefOrder{failed_lines_note, error_note,        noise_note, lengths_note,
                                            exactness_note,    first_tokens_note, chosen_note};
  constexpr std::array<Note, 7> kFullOrder{failed_lines_note, error_note,     noise_note,       lengths_note,
                                           chosen_note,       exactness_note, first_tokens_note};
  for (const Note note : form == Form::kBrief ? kBriefOrder : kFullOrder) {
    std::string text = note(setting, form);
    if (!text.empty()) notes.push_back(std::move(text));
  }
}

std::string caption_of(const TaskResult& task, Form form) {
  std::string cut;
  if (form == Form::kFull) {
    if (task.cut_sources > 0) {
      cut = fmt::format(" ({} sources were longer than max_source_tokens and were cut)", task.cut_sources);
    }
    return fmt::format("{} lines{}, {}; 95 % bootstrap intervals in brackets; runs are means over outputs.", task.lines,
                       cut, task.signature);
  }
  if (task.cut_sources > 0) cut = fmt::format(", {} sources cut", task.cut_sources);
  return fmt::format("{} ({} lines{}, greedy {} tokens/s)\n{}", task.name, task.lines, cut,
                     fixed(task.baseline.speed.tokens_per_second, 0), task.signature);
}

// Returns the note that explains the mark of conditional alphas; empty if no setting has one.
std::string conditional_note(const TaskResult& task) {
  const auto settings = task.rows();
  const bool any = std::any_of(settings.begin(), settings.end(), [](const SettingResult* setting) {
    return setting->acceptance.alpha_conditional.value_or(false);
  });
  if (!any) return "";
  return fmt::format("  {} alpha where the window rule let the drafter go on: higher than over fixed windows",
                     kConditional);
}

std::vector<Part> setting_parts(const TaskView& view, Form form) {
  const TaskResult& task = view.task;
  Part part{.caption = caption_of(task, form), .table = settings_table(task, form)};
  if (task.timed_again > 0) {
    part.notes.push_back(fmt::format("  {} timings were repeated: the machine had stood still for most of their time",
                                     task.timed_again));
  }
  for (const SettingFailure& failure : task.failures) {
    part.notes.push_back(fmt::format("! {} failed during {}: {}", failure.setting, failure.during, failure.message));
  }
  for (const SettingResult& setting : task.settings) add_notes(setting, form, part.notes);
  for (std::string note : {lossless_verdict(task), conditional_note(task), busy_note(view.results)}) {
    if (!note.empty()) part.notes.push_back(std::move(note));
  }
  if (form == Form::kFull) {
    for (const auto& [name, drafter] : task.drafters) part.notes.push_back(drafter_note(name, drafter));
  }
  return {part};
}

}  // namespace

Section settings_section() {
  return {.title = "All settings", .parts = setting_parts, .csv = setting_columns()};
}

}  // namespace draftsmith::evaluate
