// The drafting half of the decoding loop: one window of all rows.

#include <algorithm>

#include "infer/loop/decode_loop.h"
#include "infer/loop/rows.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

namespace {

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

}  // namespace draftsmith::infer
