#include "infer/windows/dynamic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "infer/sampling/sampling.h"
#include "infer/windows/row_answers.h"

namespace draftsmith::infer {

const NamedValues<WindowSchedule>& window_schedules() {
  static const NamedValues<WindowSchedule> kSchedules("schedule",
                                                      {{"heuristic", WindowSchedule::kHeuristic},
                                                       {"heuristic_transient", WindowSchedule::kHeuristicTransient},
                                                       {"constant", WindowSchedule::kConstant}});
  return kSchedules;
}

WindowTraits DynamicWindow::kind(const DynamicWindowOptions& options) {
  return {.name = "dynamic",
          .decides = options.confidence > 0 ? Decides::kAfterToken : Decides::kUpFront,
          .carries = options.schedule == WindowSchedule::kHeuristic};
}

void DynamicWindow::begin(std::span<const Row> rows) {
  windows_.assign(rows.size(), carried().value_or(options_.initial));
  places_.resize(rows.size());
  std::iota(places_.begin(), places_.end(), size_t{0});
}

at::Tensor DynamicWindow::go_on(const DraftStep& step) {
  const at::Tensor sure = token_log_probability(step.logits, step.tokens);  // [B]
  const double least = std::log(options_.confidence);
  if (!sure.is_cpu()) return sure.ge(least);
  return row_answers(sure, [least](auto value) { return value >= static_cast<decltype(value)>(least); });
}

// Transformers counts a full acceptance if the target's own token follows the whole draft, so it does not count a draft
// whose EOS is accepted. It counts an empty draft one token before the length limit. A draft may also be empty because
// the drafter found nothing to propose, and then the window stays.
void DynamicWindow::observe(int64_t row, const WindowOutcome& outcome) {
  if (options_.schedule == WindowSchedule::kConstant || !outcome.judged) return;
  if (outcome.drafted == 0 && !outcome.at_limit) return;
  int64_t& window = windows_[place(row)];
  const bool full = outcome.accepted == outcome.drafted && !outcome.cut;
  window = full ? window + 2 : std::max<int64_t>(1, window - 1);
}

void DynamicWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(places_, rows);
}

std::optional<int64_t> DynamicWindow::carried() const {
  if (options_.schedule != WindowSchedule::kHeuristic || windows_.empty()) return std::nullopt;
  return std::accumulate(windows_.begin(), windows_.end(), int64_t{0}) / std::ssize(windows_);
}

void DynamicWindow::carry(std::optional<int64_t> window) {
  windows_.clear();
  if (window) windows_.push_back(*window);
}

}  // namespace draftsmith::infer
