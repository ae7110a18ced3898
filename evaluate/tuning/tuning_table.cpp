// Tables of a tuning for the console.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"
#include "evaluate/report/section.h"
#include "evaluate/tuning/halving.h"
#include "evaluate/tuning/tuning.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kTableWidth = 100;

std::string rungs_text(const TuningResult& result) {
  Table table(
      {{"best within the budget", Align::kLeft}, {"rung"}, {"lines"}, {"settings"}, {"tokens/s"}, {"drop"}, {""}});
  for (size_t i = 0; i < result.rungs.size(); ++i) {
    const Rung& rung = result.rungs[i];
    table.add_row({rung.best, std::to_string(i + 1), std::to_string(rung.lines), std::to_string(rung.settings),
                   fixed(rung.tokens_per_second, 0), fixed(rung.drop, 2),
                   rung.measured_before ? "measured before" : ""});
  }
  table.drop_empty_columns();
  return table.text_with_whole_names(kTableWidth);
}

std::string chosen_text(const TuningResult& result) {
  Table table({{"chosen", Align::kLeft}, {"of"}, {"tokens/s"}, {"speedup"}, {"p95 ms"}, {"drop"}});
  for (const TunedSetting& one : result.chosen) {
    table.add_row({one.setting.label, std::to_string(one.of), fixed(one.tokens_per_second, 0), fixed(one.speedup, 2),
                   fixed(1000 * one.p95, 1), fixed(one.drop, 2)});
  }
  return table.text_with_whole_names(kTableWidth);
}

}  // namespace

std::string tuning_table(const TuningResult& result, const TuningOptions& options) {
  std::string text =
      wrapped(fmt::format("Tuned on {} for {}, with at most {:g} points lost.", result.task,
                          options.objective == Objective::kTokensPerSecond ? "tokens a second"
                                                                           : "the 95th percentile of the "
                                                                             "time a sentence",
                          options.max_drop),
              kTableWidth);
  text += rungs_text(result) + "\n" + chosen_text(result);
  if (!result.ruled_out.empty()) {
    text += wrapped(fmt::format("Not measured, since theory predicts less than {:g} % of the fastest of their run: {}",
                                100 * kWideMargin, fmt::join(result.ruled_out, ", ")),
                    kTableWidth);
  }
  for (const TunedSetting& one : result.chosen) {
    if (one.allowed) continue;
    text +=
        wrapped(fmt::format("! {}: no setting lost so little; this one lost least", one.setting.label), kTableWidth);
  }
  for (const std::string& note : result.notes) text += wrapped("! " + note, kTableWidth);
  return text;
}

}  // namespace draftsmith::evaluate
