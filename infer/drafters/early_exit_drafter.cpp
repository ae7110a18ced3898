#include "infer/drafters/early_exit_drafter.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "base/device_tensors.h"
#include "model/transformer/decoder_state.h"

namespace draftsmith::infer {

namespace {

bool on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous();
}

// Returns tokens[b, index[b]] of each row b: int64 [B,L] -> [B,1].
at::Tensor pick(const at::Tensor& tokens, const std::vector<int64_t>& index) {
  std::vector<int64_t> flat;
  for (size_t b = 0; b < index.size(); ++b) flat.push_back(static_cast<int64_t>(b) * tokens.size(1) + index[b]);
  const std::array<int64_t, 2> shape{std::ssize(flat), 1};
  if (!on_host(tokens)) return tokens.flatten().index_select(0, to_device(flat, shape[0], tokens.device())).view(shape);
  for (int64_t& id : flat) id = tokens.const_data_ptr<int64_t>()[id];
  return to_device(flat, shape, at::kCPU);
}

// Returns the outputs of the draft steps, each [B,1,D] on the host, as [B,width,D]: row b ran ran[b] of them, and then
// the last one.
at::Tensor join_on_host(const std::vector<at::Tensor>& steps, std::span<const int64_t> ran, int64_t width) {
  const int64_t rows = steps.front().size(0), numbers = steps.front().size(2);
  at::Tensor joined = host_empty({rows, width, numbers}, steps.front().scalar_type());
  const auto bytes = static_cast<size_t>(numbers) * joined.element_size();
  auto* to = static_cast<char*>(joined.mutable_data_ptr());
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t j = 0; j < width; ++j, to += bytes) {
      const bool drafted = j < ran[static_cast<size_t>(b)];
      const at::Tensor& step = drafted ? steps[static_cast<size_t>(j)] : steps.back();
      std::memcpy(to, static_cast<const char*>(step.const_data_ptr()) + static_cast<size_t>(b) * bytes, bytes);
    }
  }
  return joined;
}

}  // namespace

EarlyExitDrafter::EarlyExitDrafter(model::TransformerModel& target, int64_t layers, const model::Exits* exits)
    : target_(target), layers_(layers), exits_(exits), own_head_(exits == nullptr || exits->reads_as_model(layers)) {
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

// Runs tokens [B,1] of rows with a new token through layers 0..n-1, and keeps their output. Returns the logits that the
// model's own head gives, if they are wanted.
at::Tensor EarlyExitDrafter::run_first(const at::Tensor& tokens, std::span<const int64_t> new_tokens,
                                       model::Logits wanted) {
  const std::array<int64_t, 1> last{layers_};
  const model::StepPart part{.layers = {0, layers_}, .tokens = tokens, .logits = wanted, .hidden_layers = last};
  const model::StepOutput output = target_.run_part(part, state_->append(new_tokens, 1), *state_);
  hidden_.push_back(output.hidden.front());
  return output.logits;
}

at::Tensor EarlyExitDrafter::next_logits(const DraftRequest& request) {
  const at::Tensor tokens = request.drafted.empty() ? last_tokens(request.rows, target_.info().device)
                                                    : viewed(request.drafted.back(), {std::ssize(request.rows), 1});
  at::Tensor logits = run_first(tokens, request.active, own_head_ ? model::Logits::kLast : model::Logits::kNone);
  ran_.resize(request.active.size(), 0);
  for (size_t b = 0; b < ran_.size(); ++b) ran_[b] += request.active[b];
  if (!own_head_) logits = exits_->logits(target_, layers_, hidden_.back());  // [B,1,V]
  return viewed(logits, {logits.size(0), logits.size(2)});
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
    run_first(pick(input.tokens, last), left, model::Logits::kNone);
  }
  if (std::ranges::all_of(hidden_, on_host)) return join_on_host(hidden_, ran_, width);
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

model::StepOutput EarlyExitDrafter::run_target(model::LanguageModel& target, const model::StepInput& input,
                                               model::DecodeState& state) {
  if (&target != &target_) throw std::logic_error("an early exit verifies with the model that it is part of");
  if (&state != state_) throw std::logic_error("an early exit verifies over the state it drafts on");
  if (std::ranges::any_of(input.hidden_layers, [this](int64_t layer) { return layer < layers_; })) {
    throw std::logic_error("hidden states below an early exit are not kept");
  }
  const int64_t all = target_.info().layers;
  const model::StepPart rest{.layers = {layers_, all},
                             .hidden = pending_hidden(input),  // [B,L,D]
                             .logits = input.logits,
                             .hidden_layers = input.hidden_layers};
  const int64_t next = std::min(layers_, all - 1);  // with no layer left, any will do
  model::StepOutput output =
      target_.run_part(rest, state_->append(input.new_tokens, input.tokens.size(1), next), *state_);
  forget_draft();
  return output;
}

void EarlyExitDrafter::count_layers(const CountedRound& round, DecodeStats& stats) const {
  const int64_t rest = target_.info().layers - layers_;
  const int64_t tokens = std::max(round.drafted, round.processed);  // of the first n layers, one after the other
  stats.layer_runs += layers_ * tokens + rest * round.processed;
  stats.latency_units += layers_ * tokens + (round.processed > 0 ? rest : 0);
  if (round.processed <= round.drafted) return;
  stats.draft_steps.add({.share = round.share,
                         .before = round.before + round.drafted,
                         .tokens = round.processed - round.drafted,
                         .logits = 0});
}

void EarlyExitDrafter::observe(const DraftObservation& /*observation*/) {
  forget_draft();
}

}  // namespace draftsmith::infer
