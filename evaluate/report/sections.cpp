// The list of sections, what they share, and the one that each report has: quality, speed and acceptance of each
// setting of a task in a table, and notes on errors, checks of lossless settings, choices and the machine.
#include "evaluate/report/sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "evaluate/measure/machine_load.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {

const std::vector<Section>& sections() {
  static const std::vector<Section> kAll{
      {"Quality and speed", quality_speed_parts},
      {"All settings", setting_parts},
      {"Speed by category", category_parts},
      {"Predicted and measured speed", theory_parts},
      {"How well each drafter predicts", drafter_parts},
      {"Acceptance by position", position_parts},
      {"Throughput and latency", time_parts, /*console=*/false},
      {"Operations and bytes", work_parts},
      {"Inside the model", layer_parts},
      {"Match rates of early predictions", match_rate_parts},
      {"How often the large model must decide", engagement_parts},
  };
  return kAll;
}

std::unique_ptr<const metrics::Metric> metric_of(const TaskResult& task) {
  metrics::MetricOptions options;
  options.name = task.metric;
  if (task.command) static_cast<metrics::CommandOptions&>(options) = *task.command;
  return metrics::make_metric(options);
}

std::string score_words(const std::string& score) {
  if (score == "bleu") return "BLEU";
  if (score.starts_with("chrf")) return "chrF" + score.substr(4);
  return score.starts_with("rouge") ? "ROUGE-" + score.substr(5) : score;
}

std::string fixed(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}

std::string fixed(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "";
}

std::string with_interval(const Ratio& ratio, int digits, Form form) {
  const auto& [value, interval] = ratio;
  const std::string text = fixed(value, digits);
  if (text.empty() || !std::isfinite(interval.low) || !std::isfinite(interval.high)) return text;
  if (form == Form::kBrief) return fmt::format("{} ±{:.{}f}", text, (interval.high - interval.low) / 2, digits);
  return fmt::format("{} [{:.{}f}, {:.{}f}]", text, interval.low, digits, interval.high, digits);
}

ShownSettings fastest_settings(const TaskResult& task, size_t limit, bool (*shown)(const SettingResult& setting)) {
  std::vector<const SettingResult*> settings = task.rows();
  std::erase_if(settings, [&](const SettingResult* setting) { return !shown(*setting); });
  if (settings.size() <= limit) return {settings, ""};
  const std::string left_out = fmt::format(" Shown: the {} fastest of {}.", limit, settings.size());
  const auto speed = [](const SettingResult* setting) {
    return std::isfinite(setting->speed.speedup.value) ? setting->speed.speedup.value : 0;
  };
  std::vector<const SettingResult*> fastest = settings;
  std::ranges::stable_sort(fastest, [&](auto* a, auto* b) { return speed(a) > speed(b); });
  fastest.resize(limit);
  std::erase_if(settings, [&](auto* setting) { return std::ranges::find(fastest, setting) == fastest.end(); });
  return {settings, left_out};
}

namespace {

// Mark of an alpha over tokens that the window rule chose to draft.
constexpr const char* kConditionalMark = "†";

bool known(const metrics::Interval& interval) {
  return std::isfinite(interval.low) && std::isfinite(interval.high);
}

// ---- table ----

// Cell of the table of settings with its column. Tables of a form lack the columns without a header for it.
struct SettingCell {
  std::string brief;  // header
  std::string full;
  std::string text;
  std::string title;            // of pages: what the column is
  bool best_is_lowest = false;  // of pages: sorting begins with the lowest number

  const std::string& header(Form form) const { return form == Form::kBrief ? brief : full; }
};

// Returns the cells of a setting in all columns of the form.
std::vector<SettingCell> cells_of(const SettingResult& setting, const metrics::Metric& score, Form form) {
  const std::string name = score.leading_score();
  const metrics::NamedScore* quality = setting.quality.find(name);
  const auto& difference = setting.quality.difference;
  const Speed& speed = setting.speed;
  const Acceptance& acceptance = setting.acceptance;
  const std::string alpha = fixed(acceptance.alpha, 3);
  const bool conditional = !alpha.empty() && acceptance.alpha_conditional.value_or(false);
  const bool falls_back = setting.falls_back();
  std::vector<SettingCell> cells{
      {"run", "setting", setting.name, "run"},
      {name, score_words(name),
       quality == nullptr ? "" : with_interval({quality->value, quality->interval}, score.digits(), form),
       name + ", with its 95 % interval" + (score.lower_is_better() ? "; lower is better" : ""),
       score.lower_is_better()},
      {"diff", "difference", difference ? fixed(difference->value, score.digits()) : "",
       "diff: from the setting's own baseline", score.lower_is_better()},
      {"", "p-value", difference ? fixed(difference->p_value, 3) : "", "p: of the difference, by the paired bootstrap"},
      {"speedup", "speedup", with_interval(speed.speedup, 2, form),
       "speedup: tokens a second over those of the baseline"},
      {"", "speedup a line", fixed(speed.speedup_total.value, 2),
       "speedup_total: time a line, whatever the outputs' lengths"},
      {"decode", "decoding alone", fixed(speed.speedup_decode.value, 2), "decode: speedup without encoder and prompt"},
      {"theory", "predicted", setting.predicted ? fixed(setting.predicted->speedup, 2) : "",
       "theory: predicts the speedup of decoding alone from alpha and step times"},
      {"acct", "accounted", setting.accounted ? fixed(setting.accounted->speedup, 2) : "",
       "acct: the speedup that the counted runs explain"},
      {"tok/run", "tokens a target run", fixed(acceptance.tokens_per_target_run, form == Form::kBrief ? 2 : 3),
       "tok/run: new tokens for each run of the target"},
      {"alpha", "acceptance rate", alpha + (conditional ? kConditionalMark : ""),
       "alpha: expected overlap of both models' distributions"},
      {"", "drafted tokens kept", fixed(acceptance.acceptance_rate, 3), "acceptance_rate: share of all drafted tokens"},
      {"fallb", "target steps in", falls_back ? fixed(acceptance.fallback_rate, 3) : "",
       "fallb: fallbacks a new token (BiLD)"},
      {"rollb", "takes back", falls_back ? fixed(acceptance.rollback_rate, 3) : "",
       "rollb: rollbacks a new token (BiLD)"},
      {"", "target runs", fixed(acceptance.target_runs_per_output, 1), "target_runs_per_output"},
      {"", "drafter runs", fixed(acceptance.draft_runs_per_output, 1), "draft_runs_per_output"},
      {"", "tokens a second", fixed(setting.speed.tokens_per_second, 0), "tokens_per_second"}};
  std::erase_if(cells, [&](const SettingCell& cell) { return cell.header(form).empty(); });
  return cells;
}

Table settings_table(const TaskResult& task, const std::vector<const SettingResult*>& rows, Form form) {
  const auto metric = metric_of(task);
  std::vector<Column> headers;
  for (const SettingCell& cell : cells_of(task.baseline, *metric, form)) {
    const Align align = headers.empty() ? Align::kLeft : Align::kRight;
    headers.push_back({cell.header(form), align, cell.title, cell.best_is_lowest});
  }
  Table table(std::move(headers));
  for (const SettingResult* setting : rows) {
    std::vector<std::string> texts;
    for (const SettingCell& cell : cells_of(*setting, *metric, form)) texts.push_back(cell.text);
    table.add_row(std::move(texts));
    if (form == Form::kBrief && setting == &task.baseline) table.add_rule();
  }
  table.drop_empty_columns();
  return table;
}

// Returns what settings of one kind share: lossless ones their drafter, others method and model.
std::string kind_of(const SettingResult& setting) {
  const std::string drafter = setting.lossless_check ? setting.drafter_name() : "";
  return fmt::format("{} {} {}", drafter.empty() ? setting.method + setting.params.value("model", "") : drafter,
                     setting.lossless_check.has_value(), setting.params.contains("verify_end"));
}

// ---- notes ----

// Returns whether rounding explains all differences of a lossless setting.
std::string difference_words(const Exactness& exactness) {
  std::string text = fmt::format("largest margin {:.2g}", exactness.largest_margin.value_or(NAN));
  if (exactness.tolerance) text += fmt::format(", tolerance {:.2g}", *exactness.tolerance);
  text += exactness.first_unexplained ? ": more than rounding explains" : ": rounding";
  if (const auto& first = exactness.first_unexplained) {
    const auto id = [](const std::optional<int64_t>& token) { return token ? std::to_string(*token) : "nothing"; };
    text += fmt::format(" (first on line {} behind {} new tokens: {} for {})", first->line + 1, first->position,
                        id(first->token), id(first->greedy_token));
  }
  return text;
}

// The next functions return a note on a setting; empty if there is nothing to say.

std::string failed_lines_note(const SettingResult& setting, Form /*form*/) {
  if (!setting.failed_lines) return "";
  const FailedLines& failed = *setting.failed_lines;
  return fmt::format("! {}: {} lines failed (first line {}: {}): scores count them as empty, speeds lack them",
                     setting.name, failed.lines, failed.first + 1, failed.failure);
}

// Brief reports note differences of lossless settings only.
std::string exactness_note(const SettingResult& setting, Form form) {
  if (!setting.exactness || setting.exactness->differing_lines == 0) return "";
  const Exactness& exactness = *setting.exactness;
  const std::string differ = fmt::format("{}: {} of {} lines differ from greedy decoding", setting.name,
                                         exactness.differing_lines, exactness.lines);
  if (!exactness.lossless) return form == Form::kFull ? differ + "." : "";
  return fmt::format("{} {}, {}", exactness.first_unexplained ? "!" : " ", differ, difference_words(exactness));
}

std::string first_tokens_note(const SettingResult& setting, Form /*form*/) {
  if (!setting.first_tokens || setting.first_tokens->passed) return "";
  return fmt::format("! {}: {} first tokens do not have the target's distribution, p = {:.2g}", setting.name,
                     setting.first_tokens->tokens, setting.first_tokens->p_value);
}

// Returns the verdict on all lossless settings of a task; empty if there are none.
std::string lossless_verdict(const TaskResult& task) {
  std::vector<std::string> failed;
  int64_t greedy = 0;
  int64_t sampled = 0;
  double least = 1;
  for (const SettingResult* setting : task.rows()) {
    if (!setting->lossless_check) continue;
    if (!*setting->lossless_check) failed.push_back(setting->name);
    if (setting->first_tokens) {
      ++sampled;
      least = std::min(least, setting->first_tokens->p_value);
    } else {
      ++greedy;
    }
  }
  if (greedy + sampled == 0) return "";
  if (!failed.empty()) {
    return fmt::format("! Lossless check FAILED: {} of {} settings: {}", failed.size(), greedy + sampled,
                       fmt::join(failed, ", "));
  }
  std::string text = fmt::format("  Lossless check passed: {} greedy settings", greedy);
  if (sampled > 0) text += fmt::format(", {} sampled ones (first tokens, least p = {:.2g})", sampled, least);
  return text;
}

std::string chosen_note(const SettingResult& setting, Form /*form*/) {
  if (!setting.chosen) return "";
  const ChosenSetting& chosen = *setting.chosen;
  return fmt::format("  {}: {}, chosen on {} for at most {:g} points lost; there it lost {:.2f}{}", setting.name,
                     chosen.setting, chosen.on, chosen.max_drop, chosen.drop_there,
                     chosen.allowed ? "" : ", and no other setting less");
}

// Returns the noise floor, from a baseline that was measured twice.
std::string noise_note(const SettingResult& setting, Form form) {
  const Ratio& speedup = setting.speed.speedup;
  if (!setting.repeats || !known(speedup.interval)) return "";
  const auto [low, high] = std::pair(speedup.interval.low, speedup.interval.high);
  const std::string name = fmt::format("{} {}", setting.name, with_interval(speedup, 2, form));
  if (low <= 1 && high >= 1) {
    return fmt::format("  {}: noise floor, differences of speedup below {:.2f} are none", name,
                       std::max(1 - low, high - 1));
  }
  return fmt::format("! {}: the same decoding twice differs by more than its interval; something disturbed the machine",
                     name);
}

// Returns the settings that are equally fast as far as their intervals tell, of the fastest groups; empty if none are.
std::string ties_note(const TaskResult& task) {
  constexpr size_t kGroups = 3;  // that are named, of so many settings at most
  constexpr size_t kNames = 8;
  std::vector<const SettingResult*> rows;
  for (const SettingResult& setting : task.settings) {
    const bool compared = !setting.repeats && setting.baseline == task.baseline.name;
    if (compared && known(setting.speed.speedup.interval)) rows.push_back(&setting);
  }
  std::ranges::stable_sort(rows, std::greater(), [](const auto* row) { return row->speed.speedup.value; });
  std::vector<std::string> groups;
  for (auto first = rows.begin(); first != rows.end() && groups.size() < kGroups;) {
    const double lowest = (*first)->speed.speedup.interval.low;
    const auto end =
        std::find_if(first, rows.end(), [&](const auto* row) { return row->speed.speedup.interval.high < lowest; });
    std::vector<std::string> names;
    for (; first != end; ++first) names.push_back((*first)->name);
    if (names.size() > kNames) {
      names.resize(kNames);
      names.emplace_back("...");
    }
    if (names.size() > 1) groups.push_back(fmt::format("{}", fmt::join(names, ", ")));
  }
  return groups.empty() ? "" : fmt::format("  Equally fast, as far as ± tells: {}", fmt::join(groups, "; "));
}

// Returns how much of the intervals the machine alone makes; empty if that is unknown.
std::string machine_note(const TaskResult& task) {
  double most = NAN;
  for (const SettingResult& setting : task.settings) most = std::fmax(most, setting.speed.speedup_error.machine);
  if (std::isnan(most)) return "";
  return fmt::format(
      "  ± holds other lines and the machine's unrest meanwhile; the machine alone makes at most ±{:.2f}", most);
}

// Returns which settings are not as precise as the suite wants, and what they want; empty if all are.
std::string precision_note(const TaskView& view) {
  const auto precision = view.results.options.find("precision");
  if (precision == view.results.options.end() || !precision->is_number()) return "";
  std::vector<std::string> wide;
  for (const SettingResult& setting : view.task.settings) {
    const auto& [value, interval] = setting.speed.speedup;
    const double error = std::log(interval.high / interval.low) / 2;
    if (!(error > precision->get<double>())) continue;
    const bool lines = setting.speed.speedup_error.lines > precision->get<double>() * value;
    wide.push_back(fmt::format("{} ±{:.3f} ({})", setting.name, error * value, lines ? "lines" : "repetitions"));
  }
  if (wide.empty()) return "";
  return fmt::format("  Wider than {:g} % of the speedup, and what they want more of: {}",
                     100 * precision->get<double>(), fmt::join(wide, ", "));
}

// Returns the note that explains the mark of conditional alphas; empty if no setting has one.
std::string conditional_note(const TaskResult& task) {
  const auto conditional = [](auto* setting) { return setting->acceptance.alpha_conditional.value_or(false); };
  if (std::ranges::none_of(task.rows(), conditional)) return "";
  return fmt::format(
      "  {} alpha of tokens that the window rule or look-up chose to draft: higher than over fixed windows",
      kConditionalMark);
}

// Returns a warning that other processes were at work during the evaluation, and how much slower rows became; empty if
// they used little of the processors, or that is not recorded.
std::string busy_note(const Results& results) {
  const auto load = results.environment.find("other_load");
  if (load == results.environment.end() || !load->is_number() || load->get<double>() < kDisturbingLoad) return "";
  std::string text = fmt::format(
      "! Other processes used {:.0f} % of the processors meanwhile: these are speeds of a busy machine, and low ones",
      100 * load->get<double>());
  const auto slower = results.environment.find("slowdown");
  if (slower == results.environment.end() || !slower->is_object()) return text;
  return text + fmt::format("; rows took {:.2f} to {:.2f} times as long as in their fastest repetitions",
                            slower->value("least", NAN), slower->value("most", NAN));
}

// Returns the notes below the table. Those on errors begin with "!".
std::vector<std::string> setting_notes(const TaskView& view, Form form) {
  constexpr std::array kNotes{failed_lines_note, noise_note, exactness_note, chosen_note, first_tokens_note};
  const TaskResult& task = view.task;
  std::vector<std::string> notes;
  const auto add = [&](std::string note) {
    if (!note.empty()) notes.push_back(std::move(note));
  };
  if (task.warning) add("! " + *task.warning);
  if (task.timed_again > 0) {
    add(fmt::format("  {} pairs of timings were repeated: the machine had stood still for most of their time",
                    task.timed_again));
  }
  for (const SettingFailure& failure : task.failures) {
    add(fmt::format("! {} failed during {}: {}", failure.setting, failure.during, failure.message));
  }
  for (const SettingResult& setting : task.settings) {
    for (const auto& note : kNotes) add(note(setting, form));
  }
  add(ties_note(task));
  add(machine_note(task));
  add(precision_note(view));
  add(lossless_verdict(task));
  add(conditional_note(task));
  add(busy_note(view.results));
  return notes;
}

std::string settings_caption(const TaskResult& task, Form form) {
  std::string cut;
  if (task.cut_sources > 0) cut = fmt::format(", {} sources cut (longer than max_source_tokens)", task.cut_sources);
  if (form == Form::kFull) {
    return fmt::format("{} lines{}, {}; 95 % intervals in brackets; runs are means over outputs.", task.lines, cut,
                       task.signature);
  }
  return fmt::format("{} ({} lines{}, greedy {} tokens/s)\n{}", task.name, task.lines, cut,
                     fixed(task.baseline.speed.tokens_per_second, 0), task.signature);
}

}  // namespace

std::vector<const SettingResult*> leading_settings(const TaskResult& task) {
  const auto metric = metric_of(task);
  std::vector<const SettingResult*> best;
  for (const bool common : {true, false}) {  // rows that all have baselines of their own stand beside these
    for (const SettingResult& setting : task.settings) {
      if (common ? counts(setting, task) : is_compared(setting)) best.push_back(&setting);
    }
    if (!best.empty()) break;
  }
  std::ranges::stable_sort(best, std::greater(), [&](const auto* setting) {
    return std::pair(loses_little(*setting, *metric), setting->speed.speedup.value);
  });
  std::set<std::string> kinds;
  std::erase_if(best, [&](const auto* setting) { return !kinds.insert(kind_of(*setting)).second; });
  best.resize(std::min<size_t>(best.size(), 11));
  std::vector<const SettingResult*> rows = task.rows();
  std::erase_if(rows, [&](const SettingResult* row) {
    const auto needs = [&](const SettingResult* one) { return one == row || one->baseline == row->name; };
    return row != &task.baseline && std::ranges::none_of(best, needs);
  });
  return rows;
}

std::string leading_markdown(const TaskResult& task) {
  const std::vector<const SettingResult*> rows = leading_settings(task);
  const auto bounds = [](const SettingResult* row) {
    const auto& [value, interval] = row->speed.speedup;
    return known(interval) ? interval : metrics::Interval{value, value};
  };
  double most = 1;  // at most 4: a small model alone would make all other bars short
  for (const SettingResult* row : rows) most = std::fmin(std::fmax(most, bounds(row).high), 4);
  std::string bars;
  for (const SettingResult* row : rows) {
    const auto columns = [&](double speedup) { return std::lround(60 * std::clamp(speedup, 0.0, most) / most); };
    const auto [low, high] = bounds(row);
    if (!std::isfinite(high)) continue;
    bars += fmt::format("{:█<{}}{:▒<{}} {}\n", "", columns(low), "", columns(high) - columns(low),
                        row->name + (high > most ? ", beyond" : ""));
  }
  return settings_table(task, rows, Form::kBrief).markdown() + "\nSpeedup, ▒ its interval:\n\n```\n" + bars + "```\n";
}

std::vector<Part> setting_parts(const TaskView& view, Form form) {
  return {{.caption = settings_caption(view.task, form),
           .table = settings_table(view.task, view.task.rows(), form),
           .notes = setting_notes(view, form)}};
}

}  // namespace draftsmith::evaluate
