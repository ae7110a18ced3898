#include "infer/loop/plain_loop.h"

namespace draftsmith::infer {

std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings) {
  settings.process(logits, {batch.rows});
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
    if (row.fails(next[b], row.emitted(), "target")) continue;
    row.emit(next[b], settings.eos);
    batch.notify(row, row.length() - 1);
  }
}

void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer) {
  while (!batch.rows.empty()) {
    timer.enter(Phase::kVerify);
    model::StepInput input;
    input.logits = model::Logits::kLast;
    for (const Row& row : batch.rows) input.new_tokens.push_back(row.finished ? 0 : 1);
    input.tokens = last_tokens(batch.rows, target.info().device);  // [B,1]
    const auto logits = target.step(input, *batch.state).logits;   // [B,1,V]
    const auto next = choose_next(batch, logits.squeeze(1), settings);
    timer.enter(Phase::kOther);
    batch.add_time(timer.lap());
    commit_next(batch, next, settings);
    batch.remove_finished();
  }
}

}  // namespace draftsmith::infer
