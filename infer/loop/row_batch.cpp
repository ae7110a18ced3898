#include "infer/loop/row_batch.h"

#include <algorithm>

namespace draftsmith::infer {

double RowBatch::share_of_step() const {
  return 1 / static_cast<double>(std::max<int64_t>(std::ranges::count(rows, false, &Row::finished), 1));
}

bool RowBatch::shrinks() const {
  return std::ranges::count(rows, true, &Row::finished) * 4 >= std::ssize(rows);
}

std::vector<int64_t> RowBatch::remove_finished() {
  if (!shrinks()) return {};
  std::vector<int64_t> kept;
  std::vector<Row> left;
  for (size_t b = 0; b < rows.size(); ++b) {
    if (!rows[b].finished) kept.push_back(static_cast<int64_t>(b));
    if (rows[b].failure && on_tokens) on_tokens(rows[b].output, {}, true);
    (rows[b].finished ? finished : left).push_back(std::move(rows[b]));
  }
  rows = std::move(left);
  if (!kept.empty()) state->select_rows(kept);
  return kept;
}

void RowBatch::add_time(const PhaseSeconds& seconds) {
  const auto working = std::ranges::count(rows, false, &Row::timed);
  const PhaseSeconds part = seconds.scaled(1.0 / static_cast<double>(std::max<int64_t>(working, 1)));
  for (Row& row : rows) {
    if (row.timed) continue;
    row.stats.seconds += part;
    row.timed = row.finished;
  }
}

void RowBatch::share_time(PhaseTimer& timer) {
  const bool ended = std::ranges::any_of(rows, [](const Row& row) { return row.finished && !row.timed; });
  if (ended) add_time(timer.lap());
}

void RowBatch::notify(const Row& row, int64_t before) const {
  if (!on_tokens || row.length() == before) return;
  on_tokens(row.output, std::span(row.tokens).subspan(static_cast<size_t>(before)), row.finished && !row.failure);
}

}  // namespace draftsmith::infer
