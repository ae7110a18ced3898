#include "infer/loop/row_batch.h"

#include <algorithm>

#include "base/error.h"

namespace draftsmith::infer {

std::vector<int64_t> RowBatch::remove_finished() {
  const auto done = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.finished; });
  if (done * 4 < std::ssize(rows)) return {};
  std::vector<int64_t> kept;
  std::vector<Row> left;
  for (size_t b = 0; b < rows.size(); ++b) {
    if (!rows[b].finished) kept.push_back(static_cast<int64_t>(b));
    (rows[b].finished ? finished : left).push_back(std::move(rows[b]));
  }
  rows = std::move(left);
  if (!kept.empty()) state->select_rows(kept);
  return kept;
}

void RowBatch::add_time(const PhaseSeconds& seconds) {
  const auto working = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return !row.finished; });
  const PhaseSeconds part = seconds.scaled(1.0 / static_cast<double>(std::max<int64_t>(working, 1)));
  for (Row& row : rows) {
    if (!row.finished) row.stats.seconds += part;
  }
}

void RowBatch::notify(const Row& row, int64_t before) const {
  if (!on_tokens || row.length() == before) return;
  on_tokens(row.output, std::span(row.tokens).subspan(static_cast<size_t>(before)), row.finished);
}

int64_t checked_token(const Row& row, int64_t position, int64_t token, const std::string& owner) {
  if (token != kNoToken) return token;
  throw RunError({.where = "input " + std::to_string(row.line + 1) + ", new token " + std::to_string(position + 1),
                  .what = "the logits of the " + owner + " are not finite numbers",
                  .expected = "finite logits",
                  .found = "NaN or infinity",
                  .hint = "the weights are damaged, or numbers overflow: try dtype fp32"});
}

}  // namespace draftsmith::infer
