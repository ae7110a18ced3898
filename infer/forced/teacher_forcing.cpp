#include "infer/forced/teacher_forcing.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <ATen/core/grad_mode.h>

#include "base/signals.h"
#include "infer/acceptance/acceptance_rule.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {
namespace {

// Logits held at once, in values: bounds memory at large vocabularies.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

}  // namespace

ReadableTexts readable_texts(const model::ModelInfo& drafter, const ForcedBatch& texts, bool reads_sources) {
  if (texts.sources.size() != texts.outputs.size()) throw std::logic_error("sources and outputs differ in number");
  ReadableTexts kept;
  for (size_t i = 0; i < texts.sources.size(); ++i) {
    const Row row = row_before_output(texts.sources[i], drafter.encoder_decoder, drafter.decoder_start);
    const int64_t room = positions_left(drafter, row, reads_sources);
    if (room == 0) continue;
    const std::vector<int64_t>& output = texts.outputs[i];
    kept.sources.push_back(texts.sources[i]);
    kept.outputs.emplace_back(output.begin(), output.begin() + std::min(room, std::ssize(output)));
  }
  return kept;
}

void for_each_batch(const ForcedBatch& texts, size_t rows, const std::function<void(const ForcedBatch&)>& use) {
  for (size_t first = 0; first < texts.sources.size(); first += rows) {
    work_point();
    const size_t count = std::min(rows, texts.sources.size() - first);
    ForcedBatch batch = texts;
    batch.sources = texts.sources.subspan(first, count);
    batch.outputs = texts.outputs.subspan(first, count);
    use(batch);
  }
}

TeacherForcing::TeacherForcing(model::LanguageModel& model, const ForcedBatch& batch)
    : model_(model), hidden_layers_(batch.hidden_layers), logits_(batch.logits) {
  if (batch.sources.size() != batch.outputs.size()) throw std::logic_error("sources and outputs differ in number");
  std::vector<Row> rows(batch.sources.size());
  int64_t capacity = 1;
  for (size_t b = 0; b < rows.size(); ++b) {
    const auto& output = batch.outputs[b];
    rows[b] = row_before_output(batch.sources[b], model.info().encoder_decoder, model.info().decoder_start);
    if (rows[b].tokens.empty()) throw std::logic_error("teacher forcing needs a prompt");
    inputs_.push_back({rows[b].tokens.back()});
    if (!output.empty()) inputs_[b].insert(inputs_[b].end(), output.begin(), output.end() - 1);
    if (output.empty()) inputs_[b].clear();
    const auto length = static_cast<int64_t>(output.size());
    longest_ = std::max(longest_, length);
    capacity = std::max(capacity, rows[b].length() + length);
  }
  if (model.info().encoder_decoder) {
    const std::vector<std::span<const int64_t>> sources(batch.sources.begin(), batch.sources.end());
    model::TokenBatch encoded{padded(sources, model.info().pad, model.info().device), {}};  // [B,S]
    for (const auto& source : sources) encoded.lengths.push_back(std::ssize(source));
    encoder_ = model.encode(encoded);
  }
  Prefill prompts = prefill(model, encoder_, rows, {capacity, 1}, hidden_layers_);
  state_ = std::move(prompts.state);
  prompt_hidden_ = std::move(prompts.prompt_hidden);
}

int64_t TeacherForcing::positions_at_once() const {
  return std::max<int64_t>(1, kLogitsAtOnce / (rows() * model_.info().vocabulary));
}

std::vector<int64_t> TeacherForcing::valid(int64_t positions) const {
  return from_each(inputs_,
                   [&](const auto& input) { return std::clamp<int64_t>(std::ssize(input) - done_, 0, positions); });
}

model::StepOutput TeacherForcing::next_output(int64_t positions) {
  work_point();
  const int64_t width = std::min(positions, longest_ - done_);
  model::StepInput input;
  input.new_tokens = valid(width);
  std::vector<std::span<const int64_t>> next;
  for (size_t b = 0; b < inputs_.size(); ++b) {
    const std::span<const int64_t> own = inputs_[b];
    next.push_back(
        own.subspan(std::min(static_cast<size_t>(done_), own.size()), static_cast<size_t>(input.new_tokens[b])));
  }
  input.tokens = padded(next, model_.info().pad, model_.info().device);  // [B,L]
  input.hidden_layers = hidden_layers_;
  input.logits = logits_;
  done_ += width;
  return model_.step(input, *state_);
}

void AlphaSums::add(const LogitsPair& logits, const ForcedLabels& given) {
  const ForcedLabels labels{given.ids.to(logits.target.device()), given.counted.to(logits.target.device())};
  const at::Tensor& p = logits.target;
  const at::Tensor q = fit_vocabulary(logits.drafter, p.size(2));  // as in decoding
  const auto choice = most_likely(p);                              // [B,L]
  const auto drafted = most_likely(q);
  const auto same = choice.eq(drafted) & choice.ne(kNoToken) & labels.counted;
  same_ += same.sum().item<int64_t>();
  positions_ += labels.counted.sum().item<int64_t>();
  target_.add(logits.target, choice, labels);
  drafter_.add(logits.drafter, drafted, labels);
  if (warping_.greedy()) return;
  overlap_ += at::where(labels.counted, overlap(warp(p, warping_), warp(q, warping_)), 0.0).sum().item<double>();
}

void AlphaSums::add_batch(const TeacherForcing& target, const ForcedBatch& batch,
                          const std::function<LogitsPair(int64_t width)>& step) {
  const int64_t at_once = target.positions_at_once();
  for (int64_t done = 0; done < target.longest(); done += at_once) {
    const int64_t width = std::min(at_once, target.longest() - done);
    const std::vector<int64_t> valid = target.valid(width);
    const std::vector<int64_t> first(valid.size(), done);
    add(step(width), labels_of(batch.outputs, first, valid, width));
  }
}

void AlphaSums::add(const at::Tensor& logits, int64_t label, DrafterProbe& drafter) {
  const at::Tensor choice = most_likely(logits);  // [1,1]
  const ForcedLabels labels{at::full_like(choice, label), at::ones_like(choice, at::kBool)};
  if (drafter.gives_logits()) return add({logits, drafter.next_logits().unsqueeze(1)}, labels);
  const int64_t token = drafter.next_token();
  ++positions_;
  same_ += token != kNoProposal && token == choice.item<int64_t>() ? 1 : 0;
  target_.add(logits, choice, labels);
  drafter_.add(token == label);
  if (!warping_.greedy() && token != kNoProposal) overlap_ += warp(logits, warping_)[0][0][token].item<double>();
}

ForcedAlpha AlphaSums::mean() const {
  if (positions_ == 0) return {};
  const auto positions = static_cast<double>(positions_);
  const double agreement = static_cast<double>(same_) / positions;
  return {warping_.greedy() ? agreement : overlap_ / positions, agreement, positions_, target_.mean(), drafter_.mean()};
}

namespace {

void add_batch(const ForcedPair& models, const ForcedBatch& batch, AlphaSums& sums) {
  TeacherForcing target(models.target, batch);
  const auto sources = mask_unknown_ids(models.drafter.info(), batch.sources);
  const auto outputs = mask_unknown_ids(models.drafter.info(), batch.outputs);
  TeacherForcing drafter(models.drafter, {sources, outputs});
  sums.add_batch(target, batch, [&](int64_t width) {
    const auto p = target.next(width);  // [B,L,V]
    return LogitsPair{p, drafter.next(width)};
  });
}

void add_row(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& row, AlphaSums& sums) {
  const model::ModelInfo& info = target.info();
  const std::vector<int64_t>& source = row.sources.front();
  const std::vector<int64_t>& output = row.outputs.front();
  TeacherForcing forcing(target, row);
  DrafterProbe probe(drafter, info, info.encoder_decoder ? source : std::vector<int64_t>{},
                     info.encoder_decoder ? std::vector<int64_t>{info.decoder_start} : source);
  const int64_t at_once = forcing.positions_at_once();
  for (int64_t done = 0; done < forcing.longest(); done += at_once) {
    const int64_t width = std::min(at_once, forcing.longest() - done);
    const auto logits = forcing.next(width);  // [1,L,V]
    for (int64_t j = 0; j < width; ++j) {
      const int64_t token = output[static_cast<size_t>(done + j)];
      sums.add(logits.narrow(1, j, 1), token, probe);
      probe.commit(token);
    }
  }
}

}  // namespace

ForcedAlpha measure_forced_alpha(const ForcedPair& models, const ForcedBatch& texts, const Warping& warping) {
  const at::NoGradGuard no_grad;
  AlphaSums sums(warping);
  const ReadableTexts read = readable_texts(models.drafter.info(), texts, true);
  for_each_batch({read.sources, read.outputs}, kForcedRows,
                 [&](const ForcedBatch& batch) { add_batch(models, batch, sums); });
  return sums.mean();
}

ForcedAlpha measure_forced_alpha(model::LanguageModel& target, Drafter& drafter, const ForcedBatch& texts,
                                 const Warping& warping) {
  const at::NoGradGuard no_grad;
  AlphaSums sums(warping);
  for (size_t i = 0; i < texts.sources.size(); ++i) {
    add_row(target, drafter, {texts.sources.subspan(i, 1), texts.outputs.subspan(i, 1)}, sums);
  }
  return sums.mean();
}

ForcedAlpha LoadedDrafter::forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                                        int64_t /*block*/) const {
  if (model() == nullptr) return measure_forced_alpha(target.model, *make(target), texts, warping);
  return measure_forced_alpha({target.model, *model()}, texts, warping);
}

ForcedLabels labels_of(std::span<const std::vector<int64_t>> outputs, std::span<const int64_t> first,
                       std::span<const int64_t> valid, int64_t width) {
  const auto rows = std::ssize(outputs);
  at::Tensor ids = at::zeros({rows, width}, at::kLong);
  at::Tensor counted = at::zeros({rows, width}, at::kBool);
  for (int64_t b = 0; b < rows; ++b) {
    const auto row = static_cast<size_t>(b);
    if (valid[row] == 0) continue;
    std::copy_n(outputs[row].begin() + first[row], valid[row], ids.data_ptr<int64_t>() + b * width);
    std::fill_n(counted.data_ptr<bool>() + b * width, valid[row], true);
  }
  return {ids, counted};
}

void QualitySums::add(const at::Tensor& logits, const at::Tensor& choice, const ForcedLabels& labels) {
  positions_ += labels.counted.sum().item<int64_t>();
  correct_ += (choice.eq(labels.ids) & labels.counted).sum().item<int64_t>();
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor known = labels.ids.clamp_max(logits.size(2) - 1);
  at::Tensor log_probs = wide.log_softmax(2).gather(2, known.unsqueeze(2)).squeeze(2);  // [B,L]
  log_probs = log_probs.masked_fill(known.ne(labels.ids), -std::numeric_limits<double>::infinity());
  nats_ -= log_probs.masked_fill(labels.counted.logical_not(), 0).to(at::kDouble).sum().item<double>();
}

void QualitySums::add(bool correct) {
  ++positions_;
  correct_ += correct ? 1 : 0;
  nats_ = std::numeric_limits<double>::quiet_NaN();
}

PredictionQuality QualitySums::mean() const {
  const auto positions = static_cast<double>(positions_);
  return {static_cast<double>(correct_) / positions, nats_ / positions};
}

}  // namespace draftsmith::infer
