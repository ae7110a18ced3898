#include "infer/drafters/early_exit_drafter.h"

#include <algorithm>
#include <stdexcept>

#include "model/transformer/decoder_state.h"

namespace draftsmith::infer {

namespace {

// Returns values[b, index[b]] for each row b. [B,L,...] -> [B,...]
at::Tensor pick(const at::Tensor& values, const std::vector<int64_t>& index) {
  const bool equal = std::all_of(index.begin(), index.end(), [&](int64_t i) { return i == index.front(); });
  if (equal && !index.empty()) return values.select(1, index.front());
  std::vector<int64_t> flat;
  for (size_t b = 0; b < index.size(); ++b) flat.push_back(static_cast<int64_t>(b) * values.size(1) + index[b]);
  return values.flatten(0, 1).index_select(0, to_device(flat, {std::ssize(flat)}, values.device()));
}

}  // namespace

EarlyExitDrafter::EarlyExitDrafter(model::TransformerModel& target, int64_t layers, const model::Exits* exits)
    : target_(target), layers_(layers), exits_(exits) {
  if (layers < 1 || layers > target.info().layers) throw std::logic_error("an exit layer outside the target");
}

void EarlyExitDrafter::prefill(const DraftBegin& begin) {
  state_ = dynamic_cast<model::DecoderState*>(begin.target_state);
  if (state_ == nullptr) throw std::logic_error("an early exit drafts over a transformer's decode state");
  forget_draft();
}

void EarlyExitDrafter::forget_draft() {
  hidden_.clear();
  ran_.clear();
}

// Runs tokens [B,1] of rows with a new token through layers 0..n-1. Returns [B,1,D].
at::Tensor EarlyExitDrafter::run_first(const at::Tensor& tokens, std::span<const int64_t> new_tokens) {
  const model::StepLayout layout = state_->append(new_tokens, 1);
  return target_.run_layers({0, layers_}, target_.embed(tokens, layout), layout, *state_);
}

at::Tensor EarlyExitDrafter::next_logits(const DraftRequest& request) {
  const at::Tensor tokens = request.drafted.empty() ? last_tokens(request.rows, target_.info().device)
                                                    : request.drafted.back().unsqueeze(1);  // [B,1]
  hidden_.push_back(run_first(tokens, request.active));
  ran_.resize(request.active.size(), 0);
  for (size_t b = 0; b < ran_.size(); ++b) ran_[b] += request.active[b];
  return model::exit_logits(target_, exits_, layers_, hidden_.back()).select(1, 0);  // [B,V]
}

// Returns the outputs of layer n for all pending tokens, [B,L,D]; garbage beyond a row's own tokens. A row whose draft
// ended before a token was taken has run its last token already. The last tokens of the other rows run here, and their
// outputs lie behind those of the draft steps.
at::Tensor EarlyExitDrafter::pending_hidden(const model::StepInput& input) {
  const int64_t width = input.tokens.size(1);
  const auto steps = std::ssize(hidden_);
  ran_.resize(input.new_tokens.size(), 0);
  std::vector<int64_t> left;  // [B]
  std::vector<int64_t> last;  // [B] index of the token that is left
  bool aligned = true;
  for (size_t b = 0; b < ran_.size(); ++b) {
    left.push_back(std::max<int64_t>(0, input.new_tokens[b] - ran_[b]));
    last.push_back(std::min(ran_[b], width - 1));
    aligned = aligned && (left.back() == 0 || ran_[b] == steps);
  }
  if (hidden_.empty() || std::any_of(left.begin(), left.end(), [](int64_t count) { return count > 0; })) {
    hidden_.push_back(run_first(pick(input.tokens, last).unsqueeze(1), left));
  }
  const auto joined = hidden_.size() == 1 ? hidden_.front() : at::cat(hidden_, 1);  // [B,C,D]
  const int64_t columns = joined.size(1);
  if (aligned && columns == width) return joined;
  std::vector<int64_t> source;  // [B,L]
  for (int64_t b = 0; b < joined.size(0); ++b) {
    const int64_t ran = ran_[static_cast<size_t>(b)];
    for (int64_t j = 0; j < width; ++j) source.push_back(b * columns + std::min(j < ran ? j : steps, columns - 1));
  }
  const auto index = to_device(source, {std::ssize(source)}, joined.device());
  return joined.flatten(0, 1).index_select(0, index).view({joined.size(0), width, joined.size(2)});
}

// Runs layers n..N-1 and stores the wanted hidden states in `output`.
at::Tensor EarlyExitDrafter::run_rest(at::Tensor hidden, const model::StepInput& input, model::StepOutput& output) {
  const int64_t all = target_.info().layers;
  output.hidden.resize(input.hidden_layers.size());
  const auto keep = [&](int64_t layer) {
    for (size_t i = 0; i < output.hidden.size(); ++i) {
      if (input.hidden_layers[i] == layer) output.hidden[i] = hidden;
    }
  };
  std::vector<int64_t> stops(input.hidden_layers);
  stops.push_back(all);
  std::sort(stops.begin(), stops.end());
  if (stops.front() < layers_) throw std::logic_error("hidden states below an early exit are not kept");
  const model::StepLayout layout =
      layers_ < all ? state_->append(input.new_tokens, input.tokens.size(1), layers_) : model::StepLayout{};
  int64_t layer = layers_;
  keep(layer);
  for (const int64_t stop : stops) {
    if (stop == layer) continue;
    hidden = target_.run_layers({layer, stop}, hidden, layout, *state_);
    layer = stop;
    keep(layer);
  }
  return hidden;
}

model::StepOutput EarlyExitDrafter::run_target(model::LanguageModel& target, const model::StepInput& input,
                                               model::DecodeState& state) {
  if (&target != &target_) throw std::logic_error("an early exit verifies with the model that it is part of");
  if (&state != state_) throw std::logic_error("an early exit verifies over the state it drafts on");
  model::StepOutput output;
  const at::Tensor hidden = run_rest(pending_hidden(input), input, output);  // [B,L,D]
  if (input.logits == model::Logits::kAll) output.logits = target_.exit_head(hidden);
  if (input.logits == model::Logits::kLast) {
    std::vector<int64_t> last;
    for (const int64_t count : input.new_tokens) last.push_back(std::max<int64_t>(0, count - 1));
    output.logits = target_.exit_head(pick(hidden, last).unsqueeze(1));
  }
  forget_draft();
  return output;
}

void EarlyExitDrafter::count_layers(int64_t drafted, int64_t processed, DecodeStats& stats) const {
  const int64_t rest = target_.info().layers - layers_;
  const int64_t tokens = std::max(drafted, processed);  // that the first n layers took, one after the other
  stats.layer_runs += layers_ * tokens + rest * processed;
  stats.latency_units += layers_ * tokens + (processed > 0 ? rest : 0);
}

void EarlyExitDrafter::observe(const DraftObservation& /*observation*/) {
  forget_draft();
}

}  // namespace draftsmith::infer
