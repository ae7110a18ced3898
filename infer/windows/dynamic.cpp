#include "infer/windows/dynamic.h"

#include <algorithm>
#include <cmath>

#include "infer/sampling/sampling.h"

namespace draftsmith::infer {

WindowTraits DynamicWindow::kind(const DynamicWindowOptions& options) {
  return {.name = "dynamic", .decides = options.confidence > 0 ? Decides::kAfterToken : Decides::kUpFront};
}

void DynamicWindow::begin(std::span<const Row> rows) {
  windows_.assign(rows.size(), options_.initial);
}

at::Tensor DynamicWindow::go_on(const DraftStep& step) {
  return token_log_probability(step.logits, step.tokens).ge(std::log(options_.confidence));
}

void DynamicWindow::observe(int64_t row, int64_t drafted, int64_t accepted) {
  if (!options_.heuristic || drafted == 0) return;
  int64_t& window = windows_[static_cast<size_t>(row)];
  window = accepted == drafted ? window + 2 : std::max<int64_t>(1, window - 1);
}

void DynamicWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(windows_, rows);
}

}  // namespace draftsmith::infer
