// The decoding loop without verification: a drafter that stands alone, whose blocks the target reads afterwards.

#include <algorithm>
#include <stdexcept>

#include "infer/loop/decode_loop.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

// Rows that end with their draft need no more of the target.
void DecodeLoop::keep(RowBatch& batch, Draft& window, PhaseTimer& timer) {
  read_on_host(window);
  timer.enter(Phase::kOther);
  batch.add_time(timer.take());
  std::vector<int64_t> base;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    base.push_back(batch.rows[b].length());
    Row& row = batch.rows[b];
    if (row.finished) continue;
    row.stats.layer_runs += inside_ * window.counts[b];
    row.stats.latency_units += inside_ * window.counts[b];
    keep_draft(row, window.on_host[b]);
  }
  timer.enter(Phase::kVerify);
  const model::StepOutput target = read_block(batch, base);
  const std::vector<int64_t> free =
      target.logits.defined() ? free_tokens(batch, target.logits) : std::vector<int64_t>{};
  timer.enter(Phase::kOther);
  batch.add_time(timer.take());  // before free tokens end rows: the time is theirs too
  if (!free.empty()) add_free_tokens(batch, free);
  for (size_t b = 0; b < batch.rows.size(); ++b) batch.notify(batch.rows[b], base[b]);
  timer.enter(Phase::kDraft);
  parts_.drafter->observe({batch.rows, target, base});
  timer.enter(Phase::kOther);
}

// What was drafted without synchronisation, in one transfer.
void DecodeLoop::read_on_host(Draft& window) const {
  if (reads_tokens_ || window.tokens.empty()) return;
  const auto tokens = to_host(at::stack(window.tokens, 1));  // [B,G]
  const auto width = static_cast<std::ptrdiff_t>(window.tokens.size());
  for (size_t b = 0; b < window.on_host.size(); ++b) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(b) * width;
    window.on_host[b].assign(first, first + window.counts[b]);
  }
}

// Tokens beyond an EOS were drafted without looking, and don't count.
void DecodeLoop::keep_draft(Row& row, std::span<const int64_t> drafted) {
  const auto eos = std::find_first_of(drafted.begin(), drafted.end(), settings_.eos.begin(), settings_.eos.end());
  const auto kept = drafted.first(static_cast<size_t>(eos - drafted.begin()) + (eos == drafted.end() ? 0 : 1));
  if (kept.empty() && !parts_.acceptance->traits().adds_token) {
    throw std::logic_error("a block without a token");
  }
  row.stats.drafted += std::ssize(kept);
  row.stats.accepted += std::ssize(kept);
  for (const int64_t token : kept) row.emit(token, settings_.eos);
}

// One run of the target on what it has not seen of each row that goes on: from the last token before the draft, `base`
// tokens in, to the last but one, or, when it adds a token, to the last.
model::StepOutput DecodeLoop::read_block(RowBatch& batch, std::span<const int64_t> base) {
  const bool adds_token = parts_.acceptance->traits().adds_token;
  const model::ModelInfo& info = target_.info();
  model::StepInput input;
  int64_t width = 0;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    input.new_tokens.push_back(row.finished ? 0 : row.length() - base[b] + (adds_token ? 1 : 0));
    width = std::max(width, input.new_tokens.back());
    row.stats.target_runs += row.finished ? 0 : 1;
    row.stats.target_tokens += input.new_tokens.back();
    if (inside_ > 0 && !row.finished) {
      const int64_t drafted = row.length() - base[b];
      row.stats.layer_runs += info.layers * input.new_tokens.back() - inside_ * drafted;
      row.stats.latency_units += info.layers - inside_ + inside_ * (input.new_tokens.back() - drafted);
    }
    row.stats.fallbacks += row.finished ? 0 : 1;
  }
  if (width == 0) return {};
  const auto rows = static_cast<int64_t>(batch.rows.size());
  std::vector<int64_t> tokens(static_cast<size_t>(rows * width), info.pad);
  for (int64_t b = 0; b < rows; ++b) {
    const auto row = static_cast<size_t>(b);
    std::copy_n(batch.rows[row].tokens.begin() + base[row] - 1, input.new_tokens[row], tokens.begin() + b * width);
  }
  input.tokens = to_device(tokens, {rows, width}, info.device);  // [B,L]
  input.logits = adds_token ? model::Logits::kLast : model::Logits::kNone;
  input.hidden_layers = parts_.drafter->target_layers();
  return run_target(batch, input);
}

// The target's own token after each block, [B]. logits [B,1,V]
std::vector<int64_t> DecodeLoop::free_tokens(const RowBatch& batch, const at::Tensor& logits) const {
  const auto rows = static_cast<int64_t>(batch.rows.size());
  mask_padding(logits, settings_.ids);
  if (!settings_.processors.empty()) {
    const std::vector<std::vector<int64_t>> nothing(batch.rows.size());
    settings_.processors.apply(logits, {batch.rows, nothing, 0});
  }
  const auto none = at::zeros({rows}, at::TensorOptions(at::kLong).device(logits.device()));
  const Verification empty{batch.rows, logits, none.view({rows, 1}).narrow(1, 0, 0), none, {}, settings_.warping};
  return to_host(parts_.acceptance->judge(empty).next);
}

void DecodeLoop::add_free_tokens(RowBatch& batch, std::span<const int64_t> tokens) const {
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    if (row.finished) continue;
    row.handover = false;
    row.emit(checked_token(row, row.emitted(), tokens[b], "target"), settings_.eos);
  }
}

}  // namespace draftsmith::infer
