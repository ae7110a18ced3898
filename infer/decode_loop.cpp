#include "infer/decode_loop.h"

#include <algorithm>

#include "infer/vocabulary.h"

namespace draftsmith::infer {

namespace {

bool any(const std::vector<int64_t>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](int64_t flag) { return flag != 0; });
}

void end_at_limits(std::span<const int64_t> counts, std::span<const int64_t> limits, std::vector<int64_t>& active) {
  for (size_t b = 0; b < active.size(); ++b) active[b] &= counts[b] < limits[b] ? 1 : 0;
}

void intersect(std::vector<int64_t>& active, const at::Tensor& go_on) {
  const auto on_host = go_on.cpu();
  const auto answers = on_host.accessor<bool, 1>();
  for (size_t b = 0; b < active.size(); ++b) active[b] &= answers[static_cast<int64_t>(b)] ? 1 : 0;
}

// Drafted tokens of one step, fit to be indices: kNoToken is an error in an active row; in the others, where all is
// garbage, any id will do. `on_host` holds the same tokens, or nothing when they are not read while drafting.
at::Tensor as_indices(const at::Tensor& tokens, std::span<const int64_t> on_host, std::span<const Row> rows,
                      std::span<const int64_t> active, int64_t step) {
  bool garbage = false;
  for (size_t b = 0; b < on_host.size(); ++b) {
    if (active[b] != 0) checked_token(rows[b], rows[b].emitted() + step, on_host[b], "drafter");
    garbage = garbage || on_host[b] < 0;
  }
  return garbage ? tokens.clamp_min(0) : tokens;
}

// Probabilities [B,V] that are one-hot at the tokens of the active rows; the others have none.
at::Tensor one_hot(std::span<const int64_t> tokens, std::span<const int64_t> active, const model::ModelInfo& target) {
  auto q = at::zeros({static_cast<int64_t>(tokens.size()), target.vocabulary}, at::kFloat);
  auto* values = q.mutable_data_ptr<float>();
  for (size_t b = 0; b < tokens.size(); ++b, values += target.vocabulary) {
    if (active[b] != 0) values[tokens[b]] = 1;
  }
  return q.to(target.device);
}

}  // namespace

DecodeLoop::DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
    : target_(target), parts_(parts), settings_(settings) {
  const DrafterTraits drafter = parts.drafter->traits();
  const bool decides_up_front = parts.window->traits().decides == Decides::kUpFront;
  const bool wants_most_likely = settings.warping.greedy() && settings.processors.empty();
  asks_for_tokens_ = !drafter.logits || (decides_up_front && wants_most_likely);
  reads_tokens_ =
      target.info().device.is_cpu() || !decides_up_front || settings.processors.needs_history() || drafter.on_host;
}

void DecodeLoop::run(RowBatch& batch, PhaseTimer& timer) {
  parts_.window->begin(batch.rows);
  for (Row& row : batch.rows) row.handover = parts_.acceptance->traits().first_from_target;
  const bool verifies = parts_.acceptance->traits().verifies;
  while (!batch.rows.empty()) {
    timer.enter(Phase::kDraft);
    Draft window = draft(batch);
    verifies ? verify_and_commit(batch, window, timer) : keep(batch, window, timer);
    if (const auto kept = batch.retire(); !kept.empty()) {
      parts_.drafter->select_rows(kept);
      parts_.window->select_rows(kept);
    }
  }
}

void DecodeLoop::verify_and_commit(RowBatch& batch, const Draft& window, PhaseTimer& timer) {
  timer.enter(Phase::kVerify);
  const Verdict verdict = verify(batch, window);
  timer.enter(Phase::kOther);
  batch.share(timer.take());
  const std::vector<int64_t> base = commit(batch, window, verdict);
  timer.enter(Phase::kDraft);  // a drafter that reads the target brings its cache up to date
  parts_.drafter->observe({batch.rows, verdict.target, base});
  timer.enter(Phase::kOther);
}

// A window never passes the length limit. Lossless rules leave room for the target's own token, which would come last
// in any case; for lossy ones it matters who writes the last token.
std::vector<int64_t> DecodeLoop::window_limits(const RowBatch& batch) const {
  const int64_t reserved = parts_.acceptance->traits().lossless ? 1 : 0;
  std::vector<int64_t> limits;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    const Row& row = batch.rows[b];
    const bool drafts = !row.finished && !row.handover;
    const int64_t wanted = parts_.window->length(static_cast<int64_t>(b));
    limits.push_back(drafts ? std::min(wanted, row.remaining() - reserved) : 0);
  }
  return limits;
}

DecodeLoop::Draft DecodeLoop::draft(RowBatch& batch) {
  Draft window;
  window.counts.assign(batch.rows.size(), 0);
  window.on_host.resize(batch.rows.size());
  window.limits = window_limits(batch);
  std::vector<int64_t> active(batch.rows.size(), 1);
  end_at_limits(window.counts, window.limits, active);
  while (any(active)) {
    for (size_t b = 0; b < active.size(); ++b) batch.rows[b].stats.draft_runs += active[b];
    const DraftRequest request{batch.rows, window.tokens, active, window.on_host};
    const auto proposed = asks_for_tokens_ ? parts_.drafter->next_tokens(request) : std::nullopt;  // [B]
    const bool took = proposed ? take_proposals(*proposed, window, active)
                               : take_token(batch, parts_.drafter->next_logits(request), window, active);
    if (!took) break;
    end_at_limits(window.counts, window.limits, active);
  }
  return window;
}

// The proposed token for each active row that has one; false when none has.
bool DecodeLoop::take_proposals(std::span<const int64_t> proposed, Draft& window, std::vector<int64_t>& active) const {
  for (size_t b = 0; b < active.size(); ++b) active[b] &= proposed[b] != kNoProposal ? 1 : 0;
  if (!any(active)) return false;
  if (reads_probabilities()) window.probabilities.push_back(one_hot(proposed, active, target_.info()));
  window.tokens.emplace_back();
  for (size_t b = 0; b < active.size(); ++b) window.counts[b] += active[b];
  add(proposed, window, active);
  return true;
}

// Drafted tokens on the host; an EOS ends the row's draft.
void DecodeLoop::add(std::span<const int64_t> tokens, Draft& window, std::vector<int64_t>& active) const {
  for (size_t b = 0; b < active.size(); ++b) {
    if (active[b] == 0) continue;
    window.on_host[b].push_back(tokens[b]);
    if (std::find(settings_.eos.begin(), settings_.eos.end(), tokens[b]) != settings_.eos.end()) active[b] = 0;
  }
}

// One token for each active row, as far as the window rule lets it; false when no row takes any.
bool DecodeLoop::take_token(RowBatch& batch, const at::Tensor& logits, Draft& window, std::vector<int64_t>& active) {
  const auto step = static_cast<int64_t>(window.tokens.size());
  mask_padding(logits, settings_.ids);
  if (!settings_.processors.empty()) {
    settings_.processors.apply(logits.unsqueeze(1), {batch.rows, window.on_host, step});
  }
  const Decides decides = parts_.window->traits().decides;
  if (decides == Decides::kBeforeToken) {
    intersect(active, parts_.window->go_on({logits, {}, active}));
    if (!any(active)) return false;
  }
  const auto chosen = choose(batch, logits, window);  // [B]
  const auto on_host = reads_tokens_ ? to_host(chosen) : std::vector<int64_t>{};
  const auto tokens = as_indices(chosen, on_host, batch.rows, active, step);
  window.tokens.push_back(tokens);
  for (size_t b = 0; b < active.size(); ++b) window.counts[b] += active[b];
  if (on_host.empty()) return true;
  add(on_host, window, active);
  if (decides == Decides::kAfterKept || decides == Decides::kAfterDropped) {
    ask_window({logits, tokens, active}, window, active);
  }
  return true;
}

// The rule's answer to the tokens just added. Where they stay, it is not asked of rows that are at their limit, which
// leave `active`, and with it the step's view of it.
void DecodeLoop::ask_window(const DraftStep& step, Draft& window, std::vector<int64_t>& active) const {
  const bool drops = parts_.window->traits().decides == Decides::kAfterDropped;
  if (!drops) end_at_limits(window.counts, window.limits, active);
  if (!any(active)) return;
  const auto before = active;
  intersect(active, parts_.window->go_on(step));
  for (size_t b = 0; b < active.size() && drops; ++b) {
    if (before[b] == active[b]) continue;
    --window.counts[b];
    window.on_host[b].pop_back();
  }
}

// Whether anything looks at the drafter's probabilities after drafting.
bool DecodeLoop::reads_probabilities() const {
  const AcceptanceTraits acceptance = parts_.acceptance->traits();
  return !settings_.warping.greedy() && acceptance.verifies &&
         (acceptance.needs_distribution || settings_.measure_alpha);
}

at::Tensor DecodeLoop::choose(const RowBatch& batch, const at::Tensor& logits, Draft& window) const {
  if (settings_.warping.greedy()) return most_likely(logits);
  const auto q = warp(logits, settings_.warping);  // [B,V]
  if (reads_probabilities()) window.probabilities.push_back(q);
  const auto step = static_cast<int64_t>(window.tokens.size());
  return draw(q, uniforms(batch.rows, Draw::kDraft, step, 1, logits.device()).squeeze(1));
}

// What the target is to process, int64 [B,G+1]: each row's last committed token and its draft.
at::Tensor DecodeLoop::pending_tokens(const RowBatch& batch, const Draft& window) const {
  const auto rows = static_cast<int64_t>(batch.rows.size());
  const auto device = target_.info().device;
  const size_t width = window.tokens.size() + 1;
  std::vector<int64_t> tokens;
  if (reads_tokens_) {
    tokens.assign(batch.rows.size() * width, 0);
    for (size_t b = 0; b < batch.rows.size(); ++b) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(b * width);
      *first = batch.rows[b].tokens.back();
      std::copy(window.on_host[b].begin(), window.on_host[b].end(), first + 1);
    }
    return to_device(tokens, {rows, static_cast<int64_t>(width)}, device);
  }
  for (const Row& row : batch.rows) tokens.push_back(row.tokens.back());
  const auto last = to_device(tokens, {rows, 1}, device);
  return width > 1 ? at::cat({last, at::stack(window.tokens, 1)}, 1) : last;
}

// Drafted tokens and judgement on the host, [B,G+3]: one transfer from a GPU, none on the CPU.
std::vector<int64_t> DecodeLoop::fetch(const at::Tensor& tokens, const Judgement& judgement) {
  const bool rolls_back = judgement.rolled_back.defined();
  if (!tokens.is_cpu()) {
    const auto rolled_back =
        rolls_back ? judgement.rolled_back.to(at::kLong) : at::zeros_like(judgement.accepted);  // [B]
    const auto answers = at::stack({judgement.accepted, judgement.next, rolled_back}, 1);       // [B,3]
    return to_host(at::cat({tokens, answers}, 1));
  }
  const auto drafted = tokens.accessor<int64_t, 2>();
  const auto accepted = judgement.accepted.accessor<int64_t, 1>();
  const auto next = judgement.next.accessor<int64_t, 1>();
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(tokens.size(0) * (tokens.size(1) + 3)));
  for (int64_t b = 0; b < tokens.size(0); ++b) {
    for (int64_t j = 0; j < tokens.size(1); ++j) values.push_back(drafted[b][j]);
    const bool rolled_back = rolls_back && judgement.rolled_back.accessor<bool, 1>()[b];
    values.insert(values.end(), {accepted[b], next[b], rolled_back ? 1 : 0});
  }
  return values;
}

DecodeLoop::Verdict DecodeLoop::verify(RowBatch& batch, const Draft& window) {
  const auto rows = static_cast<int64_t>(batch.rows.size());
  model::StepInput input;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    input.new_tokens.push_back(batch.rows[b].finished ? 0 : window.counts[b] + 1);
  }
  input.tokens = pending_tokens(batch, window);  // [B,G+1]
  input.hidden_layers = parts_.drafter->target_layers();
  Verdict verdict;
  verdict.target = target_.step(input, *batch.state);
  const auto& logits = verdict.target.logits;  // [B,G+1,V]
  mask_padding(logits, settings_.ids);
  if (!settings_.processors.empty()) settings_.processors.apply(logits, {batch.rows, window.on_host, 0});
  Verification verification{batch.rows,
                            logits,
                            input.tokens.narrow(1, 1, input.tokens.size(1) - 1),
                            to_device(window.counts, {rows}, logits.device()),
                            window.probabilities,
                            settings_.warping,
                            settings_.measure_alpha};
  const Judgement judgement = parts_.acceptance->judge(verification);
  verdict.values = fetch(verification.tokens, judgement);
  if (judgement.overlap.defined()) verdict.overlap = judgement.overlap.cpu();
  return verdict;
}

std::vector<int64_t> DecodeLoop::commit(RowBatch& batch, const Draft& window, const Verdict& verdict) {
  std::vector<int64_t> base;
  std::vector<int64_t> processed;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    base.push_back(row.length());
    if (!row.finished) commit_row(row, b, window.counts[b], verdict);
    batch.tell(row, base.back());
    processed.push_back(row.length() - 1);
  }
  batch.state->rollback(processed);
  return base;
}

void DecodeLoop::commit_row(Row& row, size_t index, int64_t drafted, const Verdict& verdict) {
  const auto b = static_cast<int64_t>(index);
  const auto width = static_cast<int64_t>(verdict.values.size()) / verdict.target.logits.size(0);  // G+3
  const int64_t* tokens = verdict.values.data() + b * width;
  const int64_t* answers = tokens + width - 3;
  const auto* end = std::find_first_of(tokens, tokens + drafted, settings_.eos.begin(), settings_.eos.end());
  const int64_t processed = drafted + 1;
  drafted = std::min(drafted, end - tokens + 1);
  const int64_t accepted = std::min(answers[0], drafted);
  const bool rolled_back = answers[2] != 0 && accepted < drafted;
  row.stats.count_verification(drafted, accepted, parts_.window->maximum());
  ++row.stats.target_runs;
  row.stats.target_tokens += processed;
  if (verdict.overlap.defined()) {
    const int64_t examined = std::min(accepted + 1, drafted);
    const double* values = verdict.overlap.const_data_ptr<double>() + b * verdict.overlap.size(1);
    for (int64_t j = 0; j < examined; ++j) row.stats.overlap_sum += values[j];
    row.stats.overlap_count += examined;
  }
  if (!parts_.acceptance->traits().lossless) {
    ++row.stats.fallbacks;
    row.stats.rollbacks += rolled_back ? 1 : 0;
  }
  for (int64_t j = 0; j < accepted; ++j) row.emit(tokens[j], settings_.eos);
  checked_token(row, row.emitted(), answers[1], "target");
  row.handover = answers[1] < 0;
  if (!row.handover) row.emit(answers[1], settings_.eos);
  parts_.window->observe(b, drafted, accepted);
}

}  // namespace draftsmith::infer
