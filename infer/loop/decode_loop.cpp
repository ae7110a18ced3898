#include "infer/loop/decode_loop.h"

#include <algorithm>

#include "infer/loop/row_verdict.h"

namespace draftsmith::infer {

namespace {

std::vector<int64_t> lengths_of(std::span<const Row> rows) {
  std::vector<int64_t> lengths;
  for (const Row& row : rows) lengths.push_back(row.length());
  return lengths;
}

}  // namespace

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
  const Verdict verdict = verify(batch, draft);

  timer.enter(Phase::kOther);
  commit_verdicts(batch, draft, verdict.rows, parts_, settings_.eos);
  std::vector<int64_t> processed;  // tokens that stay in the target's state
  for (const Row& row : batch.rows) processed.push_back(row.length() - 1);
  batch.state->rollback(processed);
  batch.share_time(timer);

  timer.enter(Phase::kDraft);
  parts_.drafter->observe({batch.rows, verdict.target, base});
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

DecodeLoop::Verdict DecodeLoop::verify(RowBatch& batch, Draft& draft) {
  const at::Device device = target_.info().device;
  model::StepInput input;
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    input.new_tokens.push_back(batch.rows[b].finished ? 0 : draft.counts[b] + 1);
  }
  input.tokens = pending_tokens(batch.rows, draft, device);  // [B,G+1]
  input.hidden_layers = parts_.drafter->target_layers();

  Verdict verdict;
  verdict.target = parts_.drafter->run_target(target_, input, *batch.state);
  const at::Tensor& logits = verdict.target.logits;  // [B,G+1,V]
  settings_.process(logits, {batch.rows, draft.on_host});
  const Verification verification{batch.rows,
                                  logits,
                                  drafted_tokens(input.tokens),                               // [B,G]
                                  to_device(draft.counts, {std::ssize(batch.rows)}, device),  // [B]
                                  draft.probabilities,
                                  settings_.warping,
                                  settings_.measure_alpha};
  verdict.judgement =
      fetch(parts_.acceptance->judge(verification), draft.drawn(verification.tokens), settings_.eos, draft);
  verdict.rows = row_verdicts(verdict.judgement, draft);
  draft.fail_rows(batch.rows);
  return verdict;
}

}  // namespace draftsmith::infer
