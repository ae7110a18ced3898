#include <algorithm>

#include "base/error.h"
#include "infer/loop/decode_loop.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

std::vector<int64_t> RowBatch::remove_finished() {
  const auto done = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.finished; });
  if (done * 4 < static_cast<int64_t>(rows.size())) return {};
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

int64_t checked_token(const Row& row, int64_t position, int64_t token, const std::string& whose) {
  if (token != kNoToken) return token;
  throw RunError({.where = "input " + std::to_string(row.line + 1) + ", new token " + std::to_string(position + 1),
                  .what = "the logits of the " + whose + " are not finite numbers",
                  .expected = "finite logits",
                  .found = "NaN or infinity",
                  .hint = "the weights are damaged, or numbers overflow: try dtype fp32"});
}

std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings) {
  mask_padding(logits, settings.ids);
  if (!settings.processors.empty()) {
    const std::vector<std::vector<int64_t>> nothing(batch.rows.size());
    settings.processors.apply(logits.unsqueeze(1), {batch.rows, nothing, 0});
  }
  if (settings.warping.greedy()) return to_host(most_likely(logits));
  const auto random = uniforms(batch.rows, Draw::kNext, 0, 1, logits.device()).squeeze(1);
  return to_host(draw(warp(logits, settings.warping), random));
}

void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings) {
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    if (row.finished) continue;
    ++row.stats.target_runs;
    ++row.stats.target_tokens;
    row.emit(checked_token(row, row.emitted(), next[b], "target"), settings.eos);
    batch.notify(row, row.length() - 1);
  }
}

void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer) {
  const auto device = target.info().device;
  while (!batch.rows.empty()) {
    timer.enter(Phase::kVerify);
    model::StepInput input;
    input.logits = model::Logits::kLast;
    std::vector<int64_t> last;
    for (const Row& row : batch.rows) {
      last.push_back(row.tokens.back());
      input.new_tokens.push_back(row.finished ? 0 : 1);
    }
    input.tokens = to_device(last, {std::ssize(batch.rows), 1}, device);  // [B,1]
    const auto logits = target.step(input, *batch.state).logits;          // [B,1,V]
    const auto next = choose_next(batch, logits.squeeze(1), settings);
    timer.enter(Phase::kOther);
    batch.add_time(timer.take());
    commit_next(batch, next, settings);
    batch.remove_finished();
  }
}

}  // namespace draftsmith::infer
