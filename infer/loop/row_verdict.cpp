#include "infer/loop/row_verdict.h"

#include <algorithm>

namespace draftsmith::infer {

PackedJudgement pack(const Judgement& judgement, const at::Tensor& tokens) {
  PackedJudgement packed;
  std::vector<at::Tensor> columns = {judgement.accepted.unsqueeze(1), judgement.next.unsqueeze(1)};
  if (tokens.defined()) columns.push_back(tokens);
  if (judgement.rolled_back.defined()) columns.push_back(judgement.rolled_back.unsqueeze(1).to(at::kLong));
  if (judgement.overlap.defined()) columns.push_back(judgement.overlap.view(at::kLong));  // the bits of fp64
  packed.tokens = tokens.defined() ? tokens.size(1) : 0;
  packed.rolled_back = judgement.rolled_back.defined() ? 1 : 0;
  packed.overlap = judgement.overlap.defined() ? std::optional(judgement.overlap.size(1)) : std::nullopt;
  packed.columns = at::cat(columns, 1);
  return packed;
}

Judgement PackedJudgement::judgement_of(const at::Tensor& host) const {
  Judgement judgement;
  judgement.accepted = host.select(1, 0);
  judgement.next = host.select(1, 1);
  int64_t column = 2 + tokens;
  if (rolled_back > 0) judgement.rolled_back = host.select(1, column++).to(at::kBool);
  if (overlap) judgement.overlap = host.narrow(1, column, *overlap).view(at::kDouble);
  return judgement;
}

Judgement transfer(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft) {
  const PackedJudgement packed = pack(judgement, draft.read ? at::Tensor() : tokens);
  const at::Tensor host = packed.columns.cpu();
  if (!draft.read) draft.set_tokens(packed.tokens_of(host), eos);
  return packed.judgement_of(host);
}

Judgement fetch(const Judgement& judgement, const at::Tensor& tokens, std::span<const int64_t> eos, Draft& draft) {
  return tokens.is_cpu() ? judgement : transfer(judgement, tokens, eos, draft);
}

std::vector<RowVerdict> row_verdicts(const Judgement& judgement, const Draft& draft) {
  const auto accepted = judgement.accepted.accessor<int64_t, 1>();
  const auto next = judgement.next.accessor<int64_t, 1>();
  const at::Tensor& overlap = judgement.overlap;
  std::vector<RowVerdict> verdicts(draft.on_host.size());
  for (size_t row = 0; row < verdicts.size(); ++row) {
    const auto b = static_cast<int64_t>(row);
    const int64_t drafted = std::ssize(draft.on_host[row]);
    RowVerdict& verdict = verdicts[row];
    verdict.accepted = std::min(accepted[b], drafted);
    verdict.next = next[b];
    if (judgement.rolled_back.defined()) {
      verdict.rolled_back = judgement.rolled_back.accessor<bool, 1>()[b] && verdict.accepted < drafted;
    }
    if (overlap.defined()) {
      const int64_t judged = verdict.accepted + (verdict.next == kNoToken ? 0 : 1);
      const auto examined = static_cast<size_t>(std::min(judged, drafted));
      verdict.overlap = {overlap.const_data_ptr<double>() + b * overlap.stride(0), examined};
    }
  }
  return verdicts;
}

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
