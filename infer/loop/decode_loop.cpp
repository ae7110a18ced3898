#include "infer/loop/decode_loop.h"

#include <algorithm>

namespace draftsmith::infer {

DecodeLoop::DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
    : target_(target),
      parts_(parts),
      settings_(settings),
      drafting_(target.info(), parts, settings),
      lossless_(parts.acceptance->traits().lossless) {}

void DecodeLoop::run(RowBatch& batch, PhaseTimer& timer) {
  drafting_.begin(batch);
  while (!batch.rows.empty()) {
    timer.enter(Phase::kDraft);
    Draft draft = drafting_.draft(batch);
    if (std::ranges::all_of(batch.rows, &Row::finished)) {  // the drafter's logits failed every row
      timer.enter(Phase::kOther);
      drafting_.remove_finished(batch);
      continue;
    }

    timer.enter(Phase::kVerify);
    const Verdict verdict = verify(batch, draft);

    timer.enter(Phase::kOther);
    batch.add_time(timer.lap());
    const std::vector<int64_t> base = commit(batch, draft, verdict);

    timer.enter(Phase::kDraft);
    parts_.drafter->observe({batch.rows, verdict.target, base});
    timer.enter(Phase::kOther);
    drafting_.remove_finished(batch);
  }
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
                                  input.tokens.narrow(1, 1, draft.width()),                   // [B,G]
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

std::vector<int64_t> DecodeLoop::commit(RowBatch& batch, const Draft& draft, const Verdict& verdict) {
  std::vector<int64_t> base;
  std::vector<int64_t> processed;  // tokens that stay in the target's state
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    base.push_back(row.length());
    if (!row.finished) {
      const auto& drafted = draft.on_host[b];
      count(std::ssize(drafted), draft.counts[b] + 1, verdict.rows[b], row.stats);
      commit_row(row, drafted, verdict.rows[b]);
      parts_.window->observe(static_cast<int64_t>(b), std::ssize(drafted), verdict.rows[b].accepted);
    }
    batch.notify(row, base.back());
    processed.push_back(row.length() - 1);
  }
  batch.state->rollback(processed);
  return base;
}

void DecodeLoop::commit_row(Row& row, std::span<const int64_t> drafted, const RowVerdict& verdict) const {
  for (const int64_t token : drafted.first(static_cast<size_t>(verdict.accepted))) row.emit(token, settings_.eos);
  if (!row.finished && row.fails(verdict.next, row.emitted(), "target")) return;
  row.handover = verdict.next == kNoNextToken;
  if (!row.handover) row.emit(verdict.next, settings_.eos);
}

// Counts a round of one row, in which the target processed `processed` tokens.
void DecodeLoop::count(int64_t drafted, int64_t processed, const RowVerdict& verdict, DecodeStats& stats) const {
  stats.count_verification(drafted, verdict.accepted, parts_.window->maximum());
  ++stats.target_runs;
  stats.target_tokens += processed;
  parts_.drafter->count_layers(processed - 1, processed, stats);
  for (const double overlap : verdict.overlap) stats.overlap_sum += overlap;
  stats.overlap_count += std::ssize(verdict.overlap);
  if (lossless_) return;
  ++stats.fallbacks;
  stats.rollbacks += verdict.rolled_back ? 1 : 0;
}

}  // namespace draftsmith::infer
