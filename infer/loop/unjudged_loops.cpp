// The loops in which no draft is judged: the target alone, and a drafter that stands alone.
#include <algorithm>
#include <stdexcept>

#include "base/device_tensors.h"
#include "infer/loop/decode_loop.h"
#include "model/models/language_models.h"

namespace draftsmith::infer {
namespace {

// Does what choose_next() does. Returns int64 [B] on the logits' device.
at::Tensor choose_on_device(const RowBatch& batch, const at::Tensor& logits, const DecodeSettings& settings) {
  settings.process(logits, {batch.rows});
  if (settings.warping.greedy()) return most_likely(logits);
  const auto random = uniforms(batch.rows, Draw::kNext, 0, 1, logits.device()).squeeze(1);
  return draw(warp(logits, settings.warping), random);
}

}  // namespace

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
  while (batch.goes_on()) {
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

namespace {

// Draft, keep, read: a drafter that stands alone. The target writes for rows whose drafter has no room.
class StandaloneLoop {
 public:
  StandaloneLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
      : target_(target),
        parts_(parts),
        settings_(settings),
        drafting_(target.info(), parts, settings),
        adds_token_(parts.acceptance->traits().target == TargetRole::kAddsToken) {}

  void run(RowBatch& batch, PhaseTimer& timer) {
    drafting_.begin(batch);
    while (batch.goes_on()) {
      timer.enter(Phase::kDraft);
      Draft draft = drafting_.draft(batch);
      draft.read_tokens(settings_.eos);
      draft.fail_rows(batch.rows);

      timer.enter(Phase::kOther);
      const std::vector<int64_t> base = from_each(batch.rows, &Row::length);
      for (size_t b = 0; b < batch.rows.size(); ++b) {
        if (!batch.rows[b].finished) keep_draft(batch.rows[b], draft.on_host[b]);
      }
      batch.share_time(timer);

      timer.enter(Phase::kVerify);
      const model::StepOutput target = read_blocks(batch, base, draft);
      const auto free = target.logits.defined() ? free_tokens(batch, target.logits) : std::vector<int64_t>{};
      timer.enter(Phase::kOther);
      if (!free.empty()) commit_free_tokens(batch, free, draft);
      batch.share_time(timer);
      for (size_t b = 0; b < batch.rows.size(); ++b) {
        drafting_.end_unjudged(batch, b, std::ssize(draft.on_host[b]), base[b]);
      }

      timer.enter(Phase::kDraft);
      parts_.drafter->observe({batch.rows, target, base});
      timer.enter(Phase::kOther);
      drafting_.remove_finished(batch);
    }
  }

 private:
  // Returns whether the target writes a token after the row's draft.
  bool adds_token(const Draft& draft, size_t b) const { return adds_token_ || draft.on_host[b].empty(); }

  void keep_draft(Row& row, std::span<const int64_t> drafted) const {
    if (drafted.empty() && !adds_token_ && parts_.drafter->room(row) > 0) {
      throw std::logic_error("a block without a token");
    }
    row.stats.drafted += std::ssize(drafted);
    row.stats.accepted += std::ssize(drafted);
    for (const int64_t token : drafted) row.emit(token, settings_.eos);
  }

  // Runs the target once over the tokens of each unfinished row that it has not processed: from the last one before the
  // draft to the last but one or, if it adds a token, to the last one. `base`: each row's length before its draft.
  // Returns nothing if all rows are finished.
  model::StepOutput read_blocks(RowBatch& batch, std::span<const int64_t> base, const Draft& draft) {
    model::StepInput input;
    input.logits = model::Logits::kNone;
    std::vector<std::span<const int64_t>> unread;
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      const Row& row = batch.rows[b];
      const bool adds = adds_token(draft, b);
      if (adds && !row.finished) input.logits = model::Logits::kLast;
      input.new_tokens.push_back(row.finished ? 0 : row.length() - base[b] + (adds ? 1 : 0));
      unread.push_back(std::span(row.tokens)
                           .subspan(static_cast<size_t>(base[b]) - 1, static_cast<size_t>(input.new_tokens.back())));
    }
    const double share = batch.share_of_step();
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      const int64_t before = base[b] - 1;
      const int64_t processed = input.new_tokens[b];
      DecodeStats& stats = batch.rows[b].stats;
      parts_.drafter->count_layers(
          {.before = before, .drafted = draft.steps[b], .processed = processed, .share = share}, stats);
      stats.target_tokens += processed;
      if (batch.rows[b].finished) continue;  // a row that its draft finished needs no run of the target
      stats.target_steps.add(
          {.share = share, .before = before, .tokens = processed, .logits = adds_token(draft, b) ? 1 : 0});
      ++stats.target_runs;
    }
    if (!any(input.new_tokens)) return {};
    input.tokens = padded(unread, target_.info().pad, target_.info().device);  // [B,L]
    input.hidden_layers = parts_.drafter->target_layers();
    return parts_.drafter->run_target(target_, input, *batch.state);
  }

  // Returns the target's token after each block, [B], from its logits [B,1,V].
  std::vector<int64_t> free_tokens(const RowBatch& batch, const at::Tensor& logits) const {
    const int64_t rows = std::ssize(batch.rows);
    settings_.process(logits, {batch.rows});
    const auto none = at::zeros({rows}, at::TensorOptions(at::kLong).device(logits.device()));
    const Verification empty{batch.rows, logits, none.view({rows, 1}).narrow(1, 0, 0), none, {}, settings_.warping};
    return to_host(parts_.acceptance->judge(empty).next);
  }

  void commit_free_tokens(RowBatch& batch, std::span<const int64_t> tokens, const Draft& draft) const {
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      Row& row = batch.rows[b];
      if (row.finished || !adds_token(draft, b)) continue;
      row.handover = false;
      if (!row.fails(tokens[b], row.emitted(), "target")) row.emit(tokens[b], settings_.eos);
    }
  }

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Drafting drafting_;
  bool adds_token_;  // the target adds a token to each block; otherwise to empty ones alone
};

}  // namespace

void decode_unjudged(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings,
                     RowBatch& batch, PhaseTimer& timer) {
  StandaloneLoop(target, parts, settings).run(batch, timer);
}

}  // namespace draftsmith::infer
