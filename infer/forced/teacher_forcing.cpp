#include "infer/forced/teacher_forcing.h"

#include <algorithm>
#include <stdexcept>

#include "infer/loop/prefill.h"

namespace draftsmith::infer {

namespace {

// Logits held at once, in values: bounds memory at large vocabularies.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

model::EncoderStates encode(model::LanguageModel& model, std::span<const std::vector<int64_t>> sources) {
  model::TokenBatch batch;
  size_t width = 1;
  for (const auto& source : sources) width = std::max(width, source.size());
  std::vector<int64_t> tokens(sources.size() * width, model.info().pad);
  for (size_t b = 0; b < sources.size(); ++b) {
    std::copy(sources[b].begin(), sources[b].end(), tokens.begin() + static_cast<int64_t>(b * width));
    batch.lengths.push_back(static_cast<int64_t>(sources[b].size()));
  }
  batch.tokens = to_device(tokens, {static_cast<int64_t>(sources.size()), static_cast<int64_t>(width)},
                           model.info().device);  // [B,S]
  return model.encode(batch);
}

}  // namespace

void for_each_batch(const ForcedBatch& texts, size_t rows, const std::function<void(const ForcedBatch&)>& use) {
  for (size_t first = 0; first < texts.sources.size(); first += rows) {
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
    const int64_t start = batch.decoder_start.value_or(model.info().decoder_start);
    rows[b].tokens = model.info().encoder_decoder ? std::vector<int64_t>{start} : batch.sources[b];
    if (rows[b].tokens.empty()) throw std::logic_error("teacher forcing needs a prompt");
    inputs_.push_back({rows[b].tokens.back()});
    if (!output.empty()) inputs_[b].insert(inputs_[b].end(), output.begin(), output.end() - 1);
    if (output.empty()) inputs_[b].clear();
    const auto length = static_cast<int64_t>(output.size());
    longest_ = std::max(longest_, length);
    capacity = std::max(capacity, rows[b].length() + length);
  }
  if (model.info().encoder_decoder) encoder_ = encode(model, batch.sources);
  Prefill prompts = prefill(model, encoder_, rows, {capacity, 1}, hidden_layers_);
  state_ = std::move(prompts.state);
  prompt_hidden_ = std::move(prompts.prompt_hidden);
}

int64_t TeacherForcing::positions_at_once() const {
  return std::max<int64_t>(1, kLogitsAtOnce / (rows() * model_.info().vocabulary));
}

std::vector<int64_t> TeacherForcing::valid(int64_t positions) const {
  std::vector<int64_t> valid;
  for (const auto& input : inputs_) valid.push_back(std::clamp<int64_t>(std::ssize(input) - done_, 0, positions));
  return valid;
}

model::StepOutput TeacherForcing::next_output(int64_t positions) {
  const int64_t width = std::min(positions, longest_ - done_);
  model::StepInput input;
  input.new_tokens = valid(width);
  std::vector<int64_t> tokens(static_cast<size_t>(rows() * width), model_.info().pad);
  for (int64_t b = 0; b < rows(); ++b) {
    const auto begin = inputs_[static_cast<size_t>(b)].begin() +
                       std::min<int64_t>(done_, static_cast<int64_t>(inputs_[static_cast<size_t>(b)].size()));
    std::copy(begin, begin + input.new_tokens[static_cast<size_t>(b)], tokens.begin() + b * width);
  }
  input.tokens = to_device(tokens, {rows(), width}, model_.info().device);  // [B,L]
  input.hidden_layers = hidden_layers_;
  input.logits = logits_;
  done_ += width;
  return model_.step(input, *state_);
}

}  // namespace draftsmith::infer
