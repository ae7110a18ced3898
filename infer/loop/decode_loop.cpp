#include "infer/loop/decode_loop.h"

#include <algorithm>
#include <stdexcept>

#include "base/device_tensors.h"
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

std::vector<int64_t> lengths_of(std::span<const Row> rows) {
  std::vector<int64_t> lengths;
  for (const Row& row : rows) lengths.push_back(row.length());
  return lengths;
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

StandaloneLoop::StandaloneLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
    : target_(target),
      parts_(parts),
      settings_(settings),
      drafting_(target.info(), parts, settings),
      adds_token_(parts.acceptance->traits().target == TargetRole::kAddsToken) {}

void StandaloneLoop::run(RowBatch& batch, PhaseTimer& timer) {
  drafting_.begin(batch);
  while (!batch.rows.empty()) {
    timer.enter(Phase::kDraft);
    Draft draft = drafting_.draft(batch);
    draft.read_tokens(settings_.eos);
    draft.fail_rows(batch.rows);

    timer.enter(Phase::kOther);
    const std::vector<int64_t> base = keep_drafts(batch, draft);
    batch.share_time(timer);

    timer.enter(Phase::kVerify);
    const model::StepOutput target = read_blocks(batch, base, draft);
    const auto free = target.logits.defined() ? free_tokens(batch, target.logits) : std::vector<int64_t>{};
    timer.enter(Phase::kOther);
    if (!free.empty()) commit_free_tokens(batch, free);
    batch.share_time(timer);
    for (size_t b = 0; b < batch.rows.size(); ++b) end_window(batch, b, std::ssize(draft.on_host[b]), base[b]);

    timer.enter(Phase::kDraft);
    parts_.drafter->observe({batch.rows, target, base});
    timer.enter(Phase::kOther);
    drafting_.remove_finished(batch);
  }
}

std::vector<int64_t> StandaloneLoop::keep_drafts(RowBatch& batch, const Draft& draft) const {
  std::vector<int64_t> base;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    base.push_back(row.length());
    if (!row.finished) keep_draft(row, draft.on_host[b]);
  }
  return base;
}

void StandaloneLoop::keep_draft(Row& row, std::span<const int64_t> drafted) const {
  if (drafted.empty() && !adds_token_) throw std::logic_error("a block without a token");
  row.stats.drafted += std::ssize(drafted);
  row.stats.accepted += std::ssize(drafted);
  for (const int64_t token : drafted) row.emit(token, settings_.eos);
}

void StandaloneLoop::end_window(const RowBatch& batch, size_t b, int64_t drafted, int64_t base) const {
  const Row& row = batch.rows[b];
  parts_.window->observe(static_cast<int64_t>(b),
                         {.drafted = drafted, .accepted = drafted, .judged = false, .at_limit = row.remaining() == 0});
  batch.notify(row, base);
}

// The target processes the tokens from the last one before the draft to the last but one or, if it adds a token, to the
// last one.
model::StepOutput StandaloneLoop::read_blocks(RowBatch& batch, std::span<const int64_t> base, const Draft& draft) {
  const model::ModelInfo& info = target_.info();
  model::StepInput input;
  int64_t width = 0;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    const Row& row = batch.rows[b];
    input.new_tokens.push_back(row.finished ? 0 : row.length() - base[b] + (adds_token_ ? 1 : 0));
    width = std::max(width, input.new_tokens.back());
  }
  const double share = batch.share_of_step();
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    count({.before = base[b] - 1, .drafted = draft.steps[b], .processed = input.new_tokens[b], .share = share},
          batch.rows[b]);
  }
  if (width == 0) return {};
  const int64_t rows = std::ssize(batch.rows);
  std::vector<int64_t> tokens(static_cast<size_t>(rows * width), info.pad);
  for (int64_t b = 0; b < rows; ++b) {
    const auto row = static_cast<size_t>(b);
    std::copy_n(batch.rows[row].tokens.begin() + base[row] - 1, input.new_tokens[row], tokens.begin() + b * width);
  }
  input.tokens = to_device(tokens, {rows, width}, info.device);  // [B,L]
  input.logits = adds_token_ ? model::Logits::kLast : model::Logits::kNone;
  input.hidden_layers = parts_.drafter->target_layers();
  return parts_.drafter->run_target(target_, input, *batch.state);
}

// Counts a round of one row. A row that its draft finished needs no run of the target.
void StandaloneLoop::count(const CountedRound& round, Row& row) const {
  parts_.drafter->count_layers(round, row.stats);
  row.stats.target_tokens += round.processed;
  if (row.finished) return;
  row.stats.target_steps.add(
      {.share = round.share, .before = round.before, .tokens = round.processed, .logits = adds_token_ ? 1 : 0});
  ++row.stats.target_runs;
  ++row.stats.fallbacks;
}

std::vector<int64_t> StandaloneLoop::free_tokens(const RowBatch& batch, const at::Tensor& logits) const {
  const int64_t rows = std::ssize(batch.rows);
  settings_.process(logits, {batch.rows});
  const auto none = at::zeros({rows}, at::TensorOptions(at::kLong).device(logits.device()));
  const Verification empty{batch.rows, logits, none.view({rows, 1}).narrow(1, 0, 0), none, {}, settings_.warping};
  return to_host(parts_.acceptance->judge(empty).next);
}

void StandaloneLoop::commit_free_tokens(RowBatch& batch, std::span<const int64_t> tokens) const {
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    if (row.finished) continue;
    row.handover = false;
    if (!row.fails(tokens[b], row.emitted(), "target")) row.emit(tokens[b], settings_.eos);
  }
}

// Drafters without logits propose tokens that no processor has seen, so their ends are always verified.
DecodeLoop::DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
    : target_(target),
      parts_(parts),
      settings_(settings),
      drafting_(target.info(), parts, settings),
      commits_ends_(!parts.acceptance->traits().verifies_end && parts.drafter->traits().logits),
      begins_rounds_(parts.acceptance->traits().looks_ahead) {}

void DecodeLoop::run(RowBatch& batch, PhaseTimer& timer) {
  drafting_.begin(batch);
  while (!batch.rows.empty()) {
    timer.enter(Phase::kDraft);
    if (begins_rounds_) {
      for (Row& row : batch.rows) row.random.begin_round(row.emitted());
    }
    Draft draft = drafting_.draft(batch);
    const std::vector<int64_t> base = lengths_of(batch.rows);
    if (commits_ends_) commit_ends(batch, draft, timer);
    const bool goes_on =
        std::any_of(batch.rows.begin(), batch.rows.end(), [](const Row& row) { return !row.finished; });
    if (goes_on) run_target(batch, draft, base, timer);
    drafting_.remove_finished(batch);
  }
}

void DecodeLoop::run_target(RowBatch& batch, Draft& draft, std::span<const int64_t> base, PhaseTimer& timer) {
  timer.enter(Phase::kVerify);
  const at::Device device = target_.info().device;
  model::StepInput input;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    input.new_tokens.push_back(batch.rows[b].finished ? 0 : draft.counts[b] + 1);
  }
  input.tokens = pending_tokens(batch.rows, draft, device);  // [B,G+1]
  input.hidden_layers = parts_.drafter->target_layers();
  const model::StepOutput target = parts_.drafter->run_target(target_, input, *batch.state);
  const at::Tensor& logits = target.logits;  // [B,G+1,V]
  settings_.process(logits, {batch.rows, draft.on_host});
  const Verification verification{batch.rows,
                                  logits,
                                  drafted_tokens(input.tokens),                               // [B,G]
                                  to_device(draft.counts, {std::ssize(batch.rows)}, device),  // [B]
                                  draft.probabilities,
                                  settings_.warping,
                                  settings_.measure_alpha};
  const Judgement judgement =
      fetch(parts_.acceptance->judge(verification), draft.drawn(verification.tokens), settings_.eos, draft);
  const std::vector<RowVerdict> verdicts = row_verdicts(judgement, draft);
  draft.fail_rows(batch.rows);

  timer.enter(Phase::kOther);
  commit_verdicts(batch, draft, verdicts, parts_, settings_.eos);
  std::vector<int64_t> processed;  // tokens that stay in the target's state
  for (const Row& row : batch.rows) processed.push_back(row.length() - 1);
  batch.state->rollback(processed);
  batch.share_time(timer);

  timer.enter(Phase::kDraft);
  parts_.drafter->observe({batch.rows, target, base});
  timer.enter(Phase::kOther);
}

void DecodeLoop::commit_ends(RowBatch& batch, Draft& draft, PhaseTimer& timer) {
  if (!draft.read) {
    draft.read_tokens(settings_.eos);
    draft.fail_rows(batch.rows);
  }
  std::vector<size_t> ending;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    if (ends_text(batch.rows[b], draft.on_host[b])) ending.push_back(b);
  }
  if (ending.empty()) return;
  timer.enter(Phase::kOther);
  for (const size_t b : ending) {
    commit_end(batch, b, draft.on_host[b]);
    draft.on_host[b].clear();
    draft.counts[b] = 0;
  }
  batch.share_time(timer);
}

bool DecodeLoop::ends_text(const Row& row, std::span<const int64_t> drafted) const {
  if (row.finished || drafted.empty()) return false;
  const auto& eos = settings_.eos;
  return std::ssize(drafted) == row.remaining() || std::find(eos.begin(), eos.end(), drafted.back()) != eos.end();
}

void DecodeLoop::commit_end(RowBatch& batch, size_t b, std::span<const int64_t> drafted) const {
  Row& row = batch.rows[b];
  const int64_t base = row.length();
  const int64_t count = std::ssize(drafted);
  row.stats.drafted += count;
  row.stats.accepted += count;
  row.stats.unverified += count;
  parts_.drafter->count_layers({.before = base - 1, .drafted = count}, row.stats);
  for (const int64_t token : drafted) row.emit(token, settings_.eos);
  parts_.window->observe(static_cast<int64_t>(b),
                         {.drafted = count, .accepted = count, .judged = false, .at_limit = row.remaining() == 0});
  batch.notify(row, base);
}

}  // namespace draftsmith::infer
