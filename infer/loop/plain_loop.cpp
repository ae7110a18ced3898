#include "infer/loop/plain_loop.h"

#include <algorithm>

#include "base/device_tensors.h"
#include "model/kinds/language_models.h"

namespace draftsmith::infer {

at::Tensor choose_on_device(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings) {
  settings.process(logits, {batch.rows});
  if (settings.warping.greedy()) return most_likely(logits);
  const auto random = uniforms(batch.rows, Draw::kNext, 0, 1, logits.device()).squeeze(1);
  return draw(warp(logits, settings.warping), random);
}

std::vector<int64_t> choose_next(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings) {
  return to_host(choose_on_device(batch, logits, settings));
}

void commit_next(RowBatch& batch, std::span<const int64_t> next, const DecodeSettings& settings, int64_t at_once) {
  const double share = batch.share_of_step();
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    if (row.finished) continue;
    const bool ran = row.emitted() == 0 || row.length() % at_once == 0;
    row.stats.target_runs += ran ? 1 : 0;
    ++row.stats.target_tokens;
    if (ran) row.stats.target_steps.add({.share = share, .before = row.length() - 1});
    if (row.fails(next[b], row.emitted(), "target")) continue;
    row.emit(next[b], settings.eos);
    batch.notify(row, row.length() - 1);
  }
}

void decode_plainly(model::LanguageModel& target, const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer) {
  const int64_t at_once = model::tokens_at_once(target);
  at::Tensor pending = last_tokens(batch.rows, target.info().device);  // [B,1]
  while (!batch.rows.empty()) {
    timer.enter(Phase::kVerify);
    model::StepInput input;
    input.logits = model::Logits::kLast;
    for (const Row& row : batch.rows) input.new_tokens.push_back(row.finished ? 0 : 1);
    input.tokens = pending;
    const auto logits = target.step(input, *batch.state).logits;  // [B,1,V]
    const at::Tensor chosen = choose_on_device(batch, viewed(logits, {logits.size(0), logits.size(2)}), settings);
    const auto next = to_host(chosen);
    timer.enter(Phase::kOther);
    commit_next(batch, next, settings, at_once);
    batch.share_time(timer);
    // The chosen tokens are on the device already; only rows that left or failed make other ones of them.
    const auto rows = batch.rows.size();
    batch.remove_finished();
    const bool same =
        batch.rows.size() == rows && std::ranges::none_of(next, [](int64_t id) { return id == kNoToken; });
    pending = same ? viewed(chosen, {std::ssize(batch.rows), 1}) : last_tokens(batch.rows, target.info().device);
  }
}

}  // namespace draftsmith::infer
