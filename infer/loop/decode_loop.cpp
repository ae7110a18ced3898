#include "infer/loop/decode_loop.h"

#include <algorithm>

#include "infer/loop/vocabulary.h"

namespace draftsmith::infer {

DecodeLoop::DecodeLoop(model::LanguageModel& target, const DraftParts& parts, const DecodeSettings& settings)
    : target_(target), parts_(parts), settings_(settings) {
  const DrafterTraits drafter = parts.drafter->traits();
  const bool decides_up_front = parts.window->traits().decides == Decides::kUpFront;
  const bool wants_most_likely = settings.warping.greedy() && settings.processors.empty();
  asks_for_tokens_ = !drafter.logits || (decides_up_front && wants_most_likely);
  reads_tokens_ =
      target.info().device.is_cpu() || !decides_up_front || settings.processors.needs_history() || drafter.on_host;
  inside_ = drafter.inside_target;
}

void DecodeLoop::run(RowBatch& batch, PhaseTimer& timer) {
  parts_.window->begin(batch.rows);
  for (Row& row : batch.rows) row.handover = parts_.acceptance->traits().first_from_target;
  const bool verifies = parts_.acceptance->traits().verifies;
  while (!batch.rows.empty()) {
    timer.enter(Phase::kDraft);
    Draft window = draft(batch);
    verifies ? verify_and_commit(batch, window, timer) : keep(batch, window, timer);
    if (const auto kept = batch.remove_finished(); !kept.empty()) {
      parts_.drafter->select_rows(kept);
      parts_.window->select_rows(kept);
    }
  }
}

void DecodeLoop::verify_and_commit(RowBatch& batch, const Draft& window, PhaseTimer& timer) {
  timer.enter(Phase::kVerify);
  const Verdict verdict = verify(batch, window);
  timer.enter(Phase::kOther);
  batch.add_time(timer.take());
  const std::vector<int64_t> base = commit(batch, window, verdict);
  timer.enter(Phase::kDraft);  // a drafter that reads the target brings its cache up to date
  parts_.drafter->observe({batch.rows, verdict.target, base});
  timer.enter(Phase::kOther);
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

model::StepOutput DecodeLoop::run_target(RowBatch& batch, const model::StepInput& input) {
  if (inside_ > 0) return parts_.drafter->run_target(input, *batch.state);
  return target_.step(input, *batch.state);
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
  verdict.target = run_target(batch, input);
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
    batch.notify(row, base.back());
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
  if (inside_ > 0) {
    // What drafted is part of the target: every layer has run once for each token, before or after. The first layers
    // took the tokens one by one, also the last: in a draft step whose token was not kept, or in the verification.
    const int64_t layers = target_.info().layers;
    row.stats.layer_runs += layers * processed;
    row.stats.latency_units += inside_ * processed + layers - inside_;
  }
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
