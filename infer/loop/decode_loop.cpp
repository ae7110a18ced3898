// Drafting, and the loop that drafts, verifies and commits. Loops in which nothing is judged are in unjudged_loops.cpp.
#include "infer/loop/decode_loop.h"

#include <algorithm>
#include <optional>

#include "base/device_tensors.h"

namespace draftsmith::infer {
namespace {

// Clears the flags of rows that the rule stops: go_on bool [B].
void intersect(std::vector<int64_t>& active, const at::Tensor& go_on) {
  const auto on_host = go_on.is_cpu() ? go_on : go_on.cpu();
  const bool* answers = on_host.const_data_ptr<bool>();
  for (size_t b = 0; b < active.size(); ++b) active[b] &= answers[b] ? 1 : 0;
}

// Returns probabilities [B,V] that are one-hot at the tokens of the active rows, and zero in the others.
at::Tensor one_hot(std::span<const int64_t> tokens, std::span<const int64_t> active, const model::ModelInfo& target) {
  auto q = at::zeros({std::ssize(tokens), target.vocabulary}, at::kFloat);
  auto* values = q.mutable_data_ptr<float>();
  for (size_t b = 0; b < tokens.size(); ++b, values += target.vocabulary) {
    if (active[b] != 0) values[tokens[b]] = 1;
  }
  return q.to(target.device);
}

}  // namespace

void Draft::set_tokens(const at::Tensor& host_tokens, std::span<const int64_t> eos) {
  const auto ids = host_tokens.accessor<int64_t, 2>();
  for (size_t b = 0; b < on_host.size(); ++b) {
    const auto row = ids[static_cast<int64_t>(b)];
    for (int64_t j = 0; j < counts[b]; ++j) {
      on_host[b].push_back(row[j]);
      if (row[j] == kNoToken || std::find(eos.begin(), eos.end(), row[j]) != eos.end()) break;
    }
  }
  read = true;
}

void Draft::fail_rows(std::span<Row> rows) {
  for (size_t b = 0; b < rows.size(); ++b) {
    auto& ids = on_host[b];
    if (ids.empty() || rows[b].finished ||
        !rows[b].fails(ids.back(), rows[b].emitted() + std::ssize(ids) - 1, "drafter")) {
      continue;
    }
    ids.clear();
    counts[b] = 0;
  }
}

void Draft::read_tokens(std::span<const int64_t> eos) {
  if (!read && !unread.empty()) set_tokens(at::stack(unread, 1).cpu(), eos);
}

void Drafting::Window::end_rows_at_limits() {
  for (size_t b = 0; b < active.size(); ++b) active[b] &= counts[b] < limits[b] ? 1 : 0;
}

Drafting::Drafting(const model::ModelInfo& target, const DraftParts& parts, const DecodeSettings& settings)
    : target_(target), parts_(parts), settings_(settings), decides_(parts.window->traits().decides) {
  const DrafterTraits drafter = parts.drafter->traits();
  const AcceptanceTraits acceptance = parts.acceptance->traits();
  const bool wants_most_likely = settings.warping.greedy() && settings.processors.empty();
  reads_tokens_ =
      target.device.is_cpu() || decides_ != Decides::kUpFront || settings.processors.needs_history() || drafter.on_host;
  const bool reads_q = !settings.warping.greedy() && (acceptance.needs_distribution || settings.measure_alpha);
  reads_probabilities_ = acceptance.target == TargetRole::kVerifies && reads_q;
  asks_for_tokens_ = !drafter.logits || (decides_ == Decides::kUpFront && wants_most_likely && !reads_probabilities_);
}

void Drafting::begin(RowBatch& batch) const {
  const AcceptanceTraits acceptance = parts_.acceptance->traits();
  // Elsewhere outputs depend on windows, so windows must not depend on earlier batches.
  if (!acceptance.lossless || !settings_.warping.greedy()) parts_.window->carry(std::nullopt);
  parts_.window->begin(batch.rows);
  for (Row& row : batch.rows) row.handover = acceptance.target == TargetRole::kAddsToken;
}

void Drafting::end_unjudged(const RowBatch& batch, size_t b, int64_t drafted, int64_t base) const {
  const Row& row = batch.rows[b];
  parts_.window->observe(static_cast<int64_t>(b),
                         {.drafted = drafted, .accepted = drafted, .judged = false, .at_limit = row.remaining() == 0});
  batch.notify(row, base);
}

void Drafting::remove_finished(RowBatch& batch) const {
  const auto kept = batch.remove_finished();
  if (kept.empty()) return;
  parts_.drafter->select_rows(kept);
  parts_.window->select_rows(kept);
}

// A window never passes the length limit or the drafter's positions. Lossless rules leave room for the target's own
// token, which would be the last one in any case; for lossy rules it matters who writes the last token.
Drafting::Window Drafting::begin_window(const RowBatch& batch) const {
  const int64_t reserved = parts_.acceptance->traits().lossless ? 1 : 0;
  Window window;
  window.read = reads_tokens_;
  window.counts.assign(batch.rows.size(), 0);
  window.steps.assign(batch.rows.size(), 0);
  window.on_host.resize(batch.rows.size());
  window.active.assign(batch.rows.size(), 1);
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    const Row& row = batch.rows[b];
    const bool drafts = !row.finished && !row.handover;
    const int64_t wanted = parts_.window->length(static_cast<int64_t>(b));
    const int64_t most = std::min(row.remaining() - reserved, parts_.drafter->room(row));
    window.limits.push_back(drafts ? std::min(wanted, most) : 0);
  }
  window.end_rows_at_limits();
  return window;
}

// Counts the drafter's next step.
void Drafting::count_step(RowBatch& batch, const DraftRequest& request, Window& window) const {
  std::vector<StepTokens> steps(batch.rows.size(), {0, 0});
  for (size_t b = 0; b < steps.size(); ++b) {
    if (window.active[b] != 0) steps[b] = parts_.drafter->step_tokens(request, b);
  }
  const auto rows = static_cast<double>(std::ranges::count_if(steps, [](const auto& one) { return one.logits > 0; }));
  for (size_t b = 0; b < steps.size(); ++b) {
    Row& row = batch.rows[b];
    const auto [tokens, logits] = steps[b];
    if (logits == 0) continue;
    ++window.steps[b];
    ++row.stats.draft_runs;
    row.stats.draft_steps.add({.share = 1 / rows,
                               .before = row.length() + window.counts[b] + logits - 1 - tokens,
                               .tokens = tokens,
                               .logits = logits});
  }
}

Draft Drafting::draft(RowBatch& batch) const {
  Window window = begin_window(batch);
  while (any(window.active)) {
    const DraftRequest request{batch.rows, window.tokens, window.active, window.on_host, window.limits};
    count_step(batch, request, window);
    const auto proposed = asks_for_tokens_ ? parts_.drafter->next_tokens(request) : std::nullopt;  // [B]
    const bool added =
        proposed ? add_proposals(*proposed, window) : add_step(batch, parts_.drafter->next_logits(request), window);
    if (!added) break;
    window.end_rows_at_limits();
  }
  return window;
}

// Adds the proposed token of each active row that has one. Returns false if no row has any.
bool Drafting::add_proposals(std::span<const int64_t> proposed, Window& window) const {
  auto& active = window.active;
  for (size_t b = 0; b < active.size(); ++b) active[b] &= proposed[b] != kNoProposal ? 1 : 0;
  if (!any(active)) return false;
  if (reads_probabilities_) window.probabilities.push_back(one_hot(proposed, active, target_));
  window.tokens.emplace_back();
  for (size_t b = 0; b < active.size(); ++b) window.counts[b] += active[b];
  append_on_host(proposed, window);
  return true;
}

// Adds one token for each active row that the window rule lets go on. Returns false if no row adds any. On a device
// tokens are taken before the rule has answered, so that one copy brings both to the host.
bool Drafting::add_step(RowBatch& batch, const at::Tensor& logits, Window& window) const {
  auto& active = window.active;
  settings_.process(logits, {batch.rows, window.on_host, window.width()});
  const bool before = decides_ == Decides::kBeforeToken;
  const bool together = decides_ != Decides::kUpFront && !logits.is_cpu();
  if (before && !together) {
    intersect(active, parts_.window->go_on({logits, {}, active}));
    if (!any(active)) return false;
  }
  const size_t distributions = window.probabilities.size();
  const auto chosen = choose(batch, logits, window);  // [B]
  std::vector<int64_t> on_host;                       // tokens, then the rule's answers if they come together
  if (reads_tokens_ && !together) on_host = to_host(chosen);
  const bool valid = !on_host.empty() && std::ranges::none_of(on_host, [](int64_t token) { return token < 0; });
  const at::Tensor tokens = valid ? chosen : chosen.clamp_min(0);
  if (together) {
    const auto go_on = parts_.window->go_on({logits, before ? at::Tensor() : tokens, active});  // [B]
    on_host = to_host(at::stack({chosen, go_on.to(at::kLong)}));
  }
  const auto apply_answers = [&] {
    for (size_t b = 0; b < active.size(); ++b) active[b] &= on_host[active.size() + b];
  };
  if (before && together) {
    apply_answers();
    if (!any(active)) {
      window.probabilities.resize(distributions);
      return false;
    }
  }
  window.tokens.push_back(tokens);
  for (size_t b = 0; b < active.size(); ++b) window.counts[b] += active[b];
  if (!reads_tokens_) {
    window.unread.push_back(chosen);
    return true;
  }
  append_on_host(std::span(on_host).first(active.size()), window);
  if (!valid) end_failed_rows(batch, window);
  if (decides_ != Decides::kAfterToken) return true;
  window.end_rows_at_limits();  // rows at their limit are not asked about
  if (together) {
    apply_answers();
  } else if (any(active)) {
    intersect(active, parts_.window->go_on({logits, tokens, active}));
  }
  return true;
}

// Fails the rows whose last token is kNoToken. They draft no more.
void Drafting::end_failed_rows(RowBatch& batch, Window& window) {
  window.fail_rows(batch.rows);
  for (size_t b = 0; b < batch.rows.size(); ++b) window.active[b] &= batch.rows[b].finished ? 0 : 1;
}

// Appends a step's tokens of the active rows to on_host. An EOS ends the row's draft.
void Drafting::append_on_host(std::span<const int64_t> tokens, Window& window) const {
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (window.active[b] == 0) continue;
    window.on_host[b].push_back(tokens[b]);
    if (std::find(settings_.eos.begin(), settings_.eos.end(), tokens[b]) != settings_.eos.end()) window.active[b] = 0;
  }
}

at::Tensor Drafting::choose(const RowBatch& batch, const at::Tensor& logits, Window& window) const {
  if (settings_.warping.greedy()) return most_likely(logits);
  const auto q = warp(logits, settings_.warping);  // [B,V]
  if (reads_probabilities_) window.probabilities.push_back(q);
  return draw(q, uniforms(batch.rows, Draw::kDraft, window.width(), 1, logits.device()).squeeze(1));
}

namespace {

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
      const std::vector<int64_t> base = from_each(batch.rows, &Row::length);
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
                                    input.tokens.narrow(1, 1, input.tokens.size(1) - 1),        // [B,G]
                                    to_device(draft.counts, {std::ssize(batch.rows)}, device),  // [B]
                                    draft.probabilities,
                                    settings_.warping,
                                    settings_.measure_alpha};
    Judgement judgement = parts_.acceptance->judge(verification);
    if (!device.is_cpu()) {
      const at::Tensor drawn = draft.unread.empty() ? verification.tokens : at::stack(draft.unread, 1);
      judgement = transfer(judgement, drawn, settings_.eos, draft);
    }
    draft.fail_rows(batch.rows);

    timer.enter(Phase::kOther);
    commit_judgement(batch, draft, judgement, parts_, settings_.eos);
    // All tokens but the last one stay in the target's state.
    batch.state->rollback(from_each(batch.rows, [](const Row& row) { return row.length() - 1; }));
    batch.share_time(timer);

    timer.enter(Phase::kDraft);
    parts_.drafter->observe({batch.rows, target, base});
    timer.enter(Phase::kOther);
  }

  // Commits drafts that end their rows' texts, which the acceptance rule lets pass unverified; undrafts them.
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
    drafting_.end_unjudged(batch, b, count, base);
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
    return decode_unjudged(target, parts, settings, batch, timer);
  }
  DecodeLoop(target, parts, settings).run(batch, timer);
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
    if (rule.rolls_back) {
      ++stats.fallbacks;
      stats.rollbacks += accepted < count ? 1 : 0;
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
