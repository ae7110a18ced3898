#include "infer/loop/commit.h"

namespace draftsmith::infer {

namespace {

// Counts a round of one row, which drafted `drafted` tokens.
void count_round(const CountedRound& round, int64_t drafted, const RowVerdict& verdict, const DraftParts& parts,
                 DecodeStats& stats) {
  stats.count_verification(drafted, verdict.accepted, parts.window->maximum());
  ++stats.target_runs;
  stats.target_tokens += round.processed;
  stats.target_steps.add(
      {.share = round.share, .before = round.before, .tokens = round.processed, .logits = round.processed});
  parts.drafter->count_layers(round, stats);
  for (const double overlap : verdict.overlap) stats.overlap_sum += overlap;
  stats.overlap_count += std::ssize(verdict.overlap);
}

void commit_row(Row& row, std::span<const int64_t> drafted, const RowVerdict& verdict, const AcceptanceTraits& rule,
                std::span<const int64_t> eos) {
  for (const int64_t token : drafted.first(static_cast<size_t>(verdict.accepted))) row.emit(token, eos);
  if (!row.finished && row.fails(verdict.next, row.emitted(), "target")) return;
  row.emit(verdict.next, eos);
  row.handover = rule.runs_again && verdict.rolled_back;
}

}  // namespace

void commit_verdicts(RowBatch& batch, const Draft& draft, std::span<const RowVerdict> verdicts, const DraftParts& parts,
                     std::span<const int64_t> eos) {
  const AcceptanceTraits rule = parts.acceptance->traits();
  const double share = batch.share_of_step();
  for (size_t b = 0; b < batch.rows.size(); ++b) {
    Row& row = batch.rows[b];
    if (row.finished) continue;
    const auto& drafted = draft.on_host[b];
    const int64_t base = row.length();
    const int64_t cut = row.stats.cut;
    const CountedRound round{
        .before = base - 1, .drafted = draft.steps[b], .processed = draft.counts[b] + 1, .share = share};
    count_round(round, std::ssize(drafted), verdicts[b], parts, row.stats);
    if (!rule.lossless) {
      ++row.stats.fallbacks;
      row.stats.rollbacks += verdicts[b].rolled_back ? 1 : 0;
    }
    commit_row(row, drafted, verdicts[b], rule, eos);
    parts.window->observe(static_cast<int64_t>(b), {.drafted = std::ssize(drafted),
                                                    .accepted = verdicts[b].accepted,
                                                    .judged = true,
                                                    .cut = row.stats.cut > cut,
                                                    .at_limit = row.remaining() == 0});
    batch.notify(row, base);
  }
}

}  // namespace draftsmith::infer
