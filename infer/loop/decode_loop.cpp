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

std::vector<int64_t> lengths_of(std::span<const Row> rows) {
  std::vector<int64_t> lengths;
  for (const Row& row : rows) lengths.push_back(row.length());
  return lengths;
}

// Returns the tokens for the target to process, int64 [B,G+1]: each row's last committed token and its draft.
at::Tensor pending_tokens(std::span<const Row> rows, const Draft& draft, at::Device device) {
  if (!draft.read) {
    const auto last = last_tokens(rows, device);
    return draft.tokens.empty() ? last : at::cat({last, at::stack(draft.tokens, 1)}, 1);
  }
  const auto width = static_cast<size_t>(draft.width()) + 1;
  std::vector<int64_t> tokens(rows.size() * width, 0);
  for (size_t b = 0; b < rows.size(); ++b) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(b * width);
    *first = rows[b].tokens.back();
    std::copy(draft.on_host[b].begin(), draft.on_host[b].end(), first + 1);
  }
  return to_device(tokens, {std::ssize(rows), static_cast<int64_t>(width)}, device);
}

// Returns the drafted tokens among these: [B,G+1] -> [B,G].
at::Tensor drafted_tokens(const at::Tensor& pending) {
  const int64_t window = pending.size(1) - 1;
  if (!pending.is_cpu()) return pending.narrow(1, 1, window);
  at::Tensor drafted = host_empty({pending.size(0), window}, at::kLong);
  const auto* from = pending.const_data_ptr<int64_t>() + 1;
  auto* to = drafted.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < pending.size(0); ++b) std::copy_n(from + b * (window + 1), window, to + b * window);
  return drafted;
}

// Ends the window of a draft that was kept without a verdict. `base`: the row's length before it.
void end_unjudged(const RowBatch& batch, size_t b, int64_t drafted, int64_t base, const DraftParts& parts) {
  const Row& row = batch.rows[b];
  parts.window->observe(static_cast<int64_t>(b),
                        {.drafted = drafted, .accepted = drafted, .judged = false, .at_limit = row.remaining() == 0});
  batch.notify(row, base);
}

// Draft, keep, read: a drafter that stands alone.
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
      const std::vector<int64_t> base = lengths_of(batch.rows);
      for (size_t b = 0; b < batch.rows.size(); ++b) {
        if (!batch.rows[b].finished) keep_draft(batch.rows[b], draft.on_host[b]);
      }
      batch.share_time(timer);

      timer.enter(Phase::kVerify);
      const model::StepOutput target = read_blocks(batch, base, draft);
      const auto free = target.logits.defined() ? free_tokens(batch, target.logits) : std::vector<int64_t>{};
      timer.enter(Phase::kOther);
      if (!free.empty()) commit_free_tokens(batch, free);
      batch.share_time(timer);
      for (size_t b = 0; b < batch.rows.size(); ++b) {
        end_unjudged(batch, b, std::ssize(draft.on_host[b]), base[b], parts_);
      }

      timer.enter(Phase::kDraft);
      parts_.drafter->observe({batch.rows, target, base});
      timer.enter(Phase::kOther);
      drafting_.remove_finished(batch);
    }
  }

 private:
  void keep_draft(Row& row, std::span<const int64_t> drafted) const {
    if (drafted.empty() && !adds_token_) throw std::logic_error("a block without a token");
    row.stats.drafted += std::ssize(drafted);
    row.stats.accepted += std::ssize(drafted);
    for (const int64_t token : drafted) row.emit(token, settings_.eos);
  }

  // Runs the target once over the tokens of each unfinished row that it has not processed: from the last one before the
  // draft to the last but one or, if it adds a token, to the last one. `base`: each row's length before its draft.
  // Returns nothing if all rows are finished.
  model::StepOutput read_blocks(RowBatch& batch, std::span<const int64_t> base, const Draft& draft) {
    model::StepInput input;
    std::vector<std::span<const int64_t>> unread;
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      const Row& row = batch.rows[b];
      input.new_tokens.push_back(row.finished ? 0 : row.length() - base[b] + (adds_token_ ? 1 : 0));
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
      stats.target_steps.add({.share = share, .before = before, .tokens = processed, .logits = adds_token_ ? 1 : 0});
      ++stats.target_runs;
      ++stats.fallbacks;
    }
    if (!any(input.new_tokens)) return {};
    input.tokens = padded(unread, target_.info().pad, target_.info().device);  // [B,L]
    input.logits = adds_token_ ? model::Logits::kLast : model::Logits::kNone;
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

  void commit_free_tokens(RowBatch& batch, std::span<const int64_t> tokens) const {
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      Row& row = batch.rows[b];
      if (row.finished) continue;
      row.handover = false;
      if (!row.fails(tokens[b], row.emitted(), "target")) row.emit(tokens[b], settings_.eos);
    }
  }

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Drafting drafting_;
  bool adds_token_;  // the target adds a token to each block
};

// Draft, verify, commit.
class DecodeLoop {
 public:
  // Drafters without logits propose tokens that no processor has seen, so their ends are always verified.
  DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
      : target_(target),
        parts_(parts),
        settings_(settings),
        drafting_(target.info(), parts, settings),
        commits_ends_(!parts.acceptance->traits().verifies_end && parts.drafter->traits().logits),
        begins_rounds_(parts.acceptance->traits().looks_ahead) {}

  void run(RowBatch& batch, PhaseTimer& timer) {
    drafting_.begin(batch);
    while (batch.goes_on()) {
      timer.enter(Phase::kDraft);
      if (begins_rounds_) {
        for (Row& row : batch.rows) row.random.begin_round(row.emitted());
      }
      Draft draft = drafting_.draft(batch);
      const std::vector<int64_t> base = lengths_of(batch.rows);
      if (commits_ends_) commit_ends(batch, draft, timer);
      if (!std::ranges::all_of(batch.rows, &Row::finished)) run_target(batch, draft, base, timer);
      drafting_.remove_finished(batch);
    }
  }

 private:
  // Runs the target over the pending tokens of rows that are not finished, judges their drafts and commits what stays.
  // `base`: each row's length before its draft.
  void run_target(RowBatch& batch, Draft& draft, std::span<const int64_t> base, PhaseTimer& timer) {
    timer.enter(Phase::kVerify);
    const at::Device device = target_.info().device;
    model::StepInput input;
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      input.new_tokens.push_back(batch.rows[b].finished ? 0 : draft.counts[b] + 1);
    }
    input.tokens = pending_tokens(batch.rows, draft, device);  // [B,G+1]
    input.hidden_layers = parts_.drafter->target_layers();
    const model::StepOutput target = parts_.drafter->run_target(target_, input, *batch.state);
    settings_.process(target.logits, {batch.rows, draft.on_host});
    const Verification verification{batch.rows,
                                    target.logits,                                              // [B,G+1,V]
                                    drafted_tokens(input.tokens),                               // [B,G]
                                    to_device(draft.counts, {std::ssize(batch.rows)}, device),  // [B]
                                    draft.probabilities,
                                    settings_.warping,
                                    settings_.measure_alpha};
    Judgement judgement = parts_.acceptance->judge(verification);
    if (!device.is_cpu()) {
      judgement = transfer(judgement, draft.drawn(verification.tokens), settings_.eos, draft);
    }
    draft.fail_rows(batch.rows);

    timer.enter(Phase::kOther);
    commit_judgement(batch, draft, judgement, parts_, settings_.eos);
    std::vector<int64_t> processed;  // tokens that stay in the target's state
    for (const Row& row : batch.rows) processed.push_back(row.length() - 1);
    batch.state->rollback(processed);
    batch.share_time(timer);

    timer.enter(Phase::kDraft);
    parts_.drafter->observe({batch.rows, target, base});
    timer.enter(Phase::kOther);
  }

  // Commits drafts that end their rows' texts, which the acceptance rule lets pass unverified. Removes them from the
  // draft.
  void commit_ends(RowBatch& batch, Draft& draft, PhaseTimer& timer) const {
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

  bool ends_text(const Row& row, std::span<const int64_t> drafted) const {
    if (row.finished || drafted.empty()) return false;
    return std::ssize(drafted) == row.remaining() || std::ranges::count(settings_.eos, drafted.back()) > 0;
  }

  void commit_end(RowBatch& batch, size_t b, std::span<const int64_t> drafted) const {
    Row& row = batch.rows[b];
    const int64_t base = row.length();
    const int64_t count = std::ssize(drafted);
    row.stats.drafted += count;
    row.stats.accepted += count;
    row.stats.unverified += count;
    parts_.drafter->count_layers({.before = base - 1, .drafted = count}, row.stats);
    for (const int64_t token : drafted) row.emit(token, settings_.eos);
    end_unjudged(batch, b, count, base, parts_);
  }

  model::LanguageModel& target_;
  const DraftParts& parts_;
  const DecodeSettings& settings_;
  Drafting drafting_;
  bool commits_ends_;   // unverified
  bool begins_rounds_;  // with random numbers of their own
};

}  // namespace

void decode_with_drafts(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings,
                        RowBatch& batch, PhaseTimer& timer) {
  if (parts.acceptance->traits().target != TargetRole::kVerifies) {
    return StandaloneLoop(target, parts, settings).run(batch, timer);
  }
  DecodeLoop(target, parts, settings).run(batch, timer);
}

PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens) {
  std::vector<at::Tensor> columns = {judgement.accepted.unsqueeze(1), judgement.next.unsqueeze(1)};
  if (tokens.defined()) columns.push_back(tokens);
  if (judgement.overlap.defined()) columns.push_back(judgement.overlap.view(at::kLong));
  return {at::cat(columns, 1), tokens.defined() ? tokens.size(1) : 0, judgement.overlap.defined()};
}

Judgement PackedJudgement::judgement_of(const at::Tensor& host) const {
  Judgement judgement{.accepted = host.select(1, 0), .next = host.select(1, 1)};
  if (overlap) judgement.overlap = host.narrow(1, 2 + tokens, host.size(1) - 2 - tokens).view(at::kDouble);
  return judgement;
}

Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft) {
  const PackedJudgement packed = pack(judgement, draft.read ? at::Tensor() : tokens);
  const at::Tensor host = packed.columns.cpu();
  if (!draft.read) draft.set_tokens(packed.tokens_of(host), eos);
  return packed.judgement_of(host);
}

void commit_judgement(RowBatch& batch, const Draft& draft, const Judgement& judgement, const DraftParts& parts,
                      std::span<const int64_t> eos) {
  const AcceptanceTraits rule = parts.acceptance->traits();
  const auto accepted_of = judgement.accepted.accessor<int64_t, 1>();
  const auto next_of = judgement.next.accessor<int64_t, 1>();
  const at::Tensor& overlap = judgement.overlap;
  const double share = batch.share_of_step();
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    if (row.finished) continue;
    const auto place = static_cast<int64_t>(b);
    const std::span<const int64_t> drafted = draft.on_host[b];
    const int64_t count = std::ssize(drafted);
    const int64_t accepted = std::min(accepted_of[place], count);
    const int64_t next = next_of[place];
    const int64_t base = row.length();
    const int64_t cut = row.stats.cut;

    DecodeStats& stats = row.stats;
    const int64_t processed = draft.counts[b] + 1;
    stats.count_verification(count, accepted, parts.window->maximum());
    ++stats.target_runs;
    stats.target_tokens += processed;
    stats.target_steps.add({.share = share, .before = base - 1, .tokens = processed, .logits = processed});
    parts.drafter->count_layers({.before = base - 1, .drafted = draft.steps[b], .processed = processed, .share = share},
                                stats);
    if (overlap.defined()) {
      const int64_t examined = std::min(accepted + (next == kNoToken ? 0 : 1), count);
      const double* values = overlap.const_data_ptr<double>() + place * overlap.stride(0);
      for (int64_t j = 0; j < examined; ++j) stats.overlap_sum += values[j];
      stats.overlap_count += examined;
    }
    if (!rule.lossless) {
      ++stats.fallbacks;
      stats.rollbacks += rule.rolls_back && accepted < count ? 1 : 0;
    }

    for (const int64_t token : drafted.first(static_cast<size_t>(accepted))) row.emit(token, eos);
    if (row.finished || !row.fails(next, row.emitted(), "target")) row.emit(next, eos);
    row.behind = count > 0 && accepted == draft.counts[b];
    parts.window->observe(place, {.drafted = count,
                                  .accepted = accepted,
                                  .judged = true,
                                  .cut = stats.cut > cut,
                                  .at_limit = row.remaining() == 0});
    batch.notify(row, base);
  }
}

}  // namespace draftsmith::infer
