#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/device_tensors.h"
#include "base/timing.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/registry.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/loop/processors.h"
#include "infer/sampling/sampling.h"
#include "infer/self_drafting/methods.h"
#include "model/models/exits.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_model.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::infer {
namespace {

bool readable_on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous();
}

// Returns tokens[b, index[b]] of each row b: int64 [B,L] -> [B,1].
at::Tensor pick(const at::Tensor& tokens, const std::vector<int64_t>& index) {
  std::vector<int64_t> flat;
  for (size_t b = 0; b < index.size(); ++b) flat.push_back(static_cast<int64_t>(b) * tokens.size(1) + index[b]);
  const std::array<int64_t, 2> shape{std::ssize(flat), 1};
  if (!readable_on_host(tokens))
    return tokens.flatten().index_select(0, to_device(flat, shape[0], tokens.device())).view(shape);
  for (int64_t& id : flat) id = tokens.const_data_ptr<int64_t>()[id];
  return to_device(flat, shape, at::kCPU);
}

// Returns the outputs of the draft steps, each [B,1,D], as [B,width,D]: row b ran ran[b] of them, and then the last
// one.
at::Tensor join(const std::vector<at::Tensor>& steps, std::span<const int64_t> ran, int64_t width) {
  const int64_t rows = steps.front().size(0), numbers = steps.front().size(2), count = std::ssize(steps);
  std::vector<int64_t> places;  // [B,width] among all outputs [B,count]
  for (int64_t n = 0; n < rows * width; ++n) {
    const int64_t b = n / width, j = n % width;
    places.push_back(b * count + (j < ran[static_cast<size_t>(b)] ? j : count - 1));
  }
  if (!std::ranges::all_of(steps, readable_on_host)) {
    const at::Tensor index = to_device(places, {std::ssize(places)}, steps.front().device());
    return at::cat(steps, 1).flatten(0, 1).index_select(0, index).view({rows, width, numbers});
  }
  at::Tensor joined = host_empty({rows, width, numbers}, steps.front().scalar_type());
  const int64_t bytes = numbers * static_cast<int64_t>(joined.element_size());
  auto* to = static_cast<char*>(joined.mutable_data_ptr());
  for (const int64_t place : places) {
    const at::Tensor& step = steps[static_cast<size_t>(place % count)];
    std::memcpy(to, static_cast<const char*>(step.const_data_ptr()) + place / count * bytes,
                static_cast<size_t>(bytes));
    to += bytes;
  }
  return joined;
}

// The drafter `early-exit`: the target's own first n layers, read by an exit (Kim et al. 2023, section 4.4). It drafts
// over the target's state, where the first n layers are ahead of the others. Verification continues from their hidden
// states, so no layer runs twice for a token, and later layers have exact keys and values.
class EarlyExitDrafter final : public Drafter {
 public:
  // `target` must be the decoding loop's, `layers` within 1..N. Without `exits` (nullptr) the model's final norm and
  // head read layer n. Target and exits must outlive the drafter.
  EarlyExitDrafter(model::TransformerModel& target, int64_t layers, const model::Exits* exits)
      : target_(target), layers_(layers), exits_(exits), own_head_(exits == nullptr || exits->reads_as_model(layers)) {
    if (layers < 1 || layers > target.info().layers) throw std::logic_error("an exit layer outside the target");
  }

  DrafterTraits traits() const override { return traits_of(DrafterKind::kExit); }

  void prefill(const DraftBegin& begin) override {
    state_ = dynamic_cast<model::DecoderState*>(begin.target_state);
    if (state_ == nullptr) throw std::logic_error("an early exit drafts over a transformer's decode state");
    forget_draft();
  }

  // Runs layers 0..n-1 of each active row's next token and keeps their output.
  at::Tensor next_logits(const DraftRequest& request) override {
    const at::Tensor tokens = request.drafted.empty() ? last_tokens(request.rows, target_.info().device)
                                                      : viewed(request.drafted.back(), {std::ssize(request.rows), 1});
    at::Tensor logits = run_first(tokens, request.active, own_head_ ? model::Logits::kLast : model::Logits::kNone);
    ran_.resize(request.active.size(), 0);
    for (size_t b = 0; b < ran_.size(); ++b) ran_[b] += request.active[b];
    if (!own_head_) logits = exits_->logits(target_, layers_, hidden_.back());  // [B,1,V]
    return viewed(logits, {logits.size(0), logits.size(2)});
  }

  // Runs layers 0..n-1 of the pending tokens that no draft step ran (usually each row's last), then the other layers of
  // all pending tokens. The input may want no hidden states.
  model::StepOutput run_target(model::LanguageModel& target, const model::StepInput& input,
                               model::DecodeState& state) override {
    if (&target != &target_) throw std::logic_error("an early exit verifies with the model that it is part of");
    if (&state != state_) throw std::logic_error("an early exit verifies over the state it drafts on");
    const int64_t all = target_.info().layers;
    const model::StepPart rest{.layers = {layers_, all},
                               .hidden = pending_hidden(input),  // [B,L,D]
                               .logits = input.logits};
    const int64_t next = std::min(layers_, all - 1);  // with no layer left, any will do
    model::StepOutput output =
        target_.run_part(rest, state_->append(input.new_tokens, input.tokens.size(1), next), *state_);
    forget_draft();
    return output;
  }

  // Counts each layer once for each token. The first n layers took the tokens one by one, the others together.
  void count_layers(const CountedRound& round, DecodeStats& stats) const override {
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

  // Forgets the draft. The loop has rolled back the state, which is the target's.
  void observe(const DraftObservation& /*observation*/) override { forget_draft(); }

 private:
  // Runs tokens [B,1] of rows with a new token through layers 0..n-1, and keeps their output. Returns the logits that
  // the model's own head gives, if they are wanted.
  at::Tensor run_first(const at::Tensor& tokens, std::span<const int64_t> new_tokens, model::Logits wanted) {
    const std::array<int64_t, 1> last{layers_};
    const model::StepPart part{.layers = {0, layers_}, .tokens = tokens, .logits = wanted, .hidden_layers = last};
    const model::StepOutput output = target_.run_part(part, state_->append(new_tokens, 1), *state_);
    hidden_.push_back(output.hidden.front());
    return output.logits;
  }

  // Returns the outputs of layer n for all pending tokens, [B,L,D]; garbage beyond a row's own tokens. A row whose
  // draft ended before a token was taken has run its last token already. The last tokens of the other rows run here,
  // and their outputs lie behind those of the draft steps.
  at::Tensor pending_hidden(const model::StepInput& input) {
    const int64_t width = input.tokens.size(1);
    ran_.resize(input.new_tokens.size(), 0);
    std::vector<int64_t> left;  // [B]
    std::vector<int64_t> last;  // [B] index of the token that is left
    bool aligned = true;
    for (size_t b = 0; b < ran_.size(); ++b) {
      left.push_back(std::max<int64_t>(0, input.new_tokens[b] - ran_[b]));
      last.push_back(std::min(ran_[b], width - 1));
      aligned = aligned && (left.back() == 0 || ran_[b] == std::ssize(hidden_));
    }
    if (hidden_.empty() || any(left)) run_first(pick(input.tokens, last), left, model::Logits::kNone);
    if (!aligned || std::ssize(hidden_) != width || hidden_.front().is_cpu()) return join(hidden_, ran_, width);
    return width == 1 ? hidden_.front() : at::cat(hidden_, 1);
  }

  void forget_draft() {
    hidden_.clear();
    ran_.clear();
  }

  model::TransformerModel& target_;
  int64_t layers_;
  const model::Exits* exits_;
  bool own_head_;  // the model's own norm and head read layer n
  model::DecoderState* state_ = nullptr;
  // --- this window ---
  std::vector<at::Tensor> hidden_;  // outputs of layer n, one [B,1,D] for each step; garbage for rows that did not run
  std::vector<int64_t> ran_;        // [B] draft steps that each row ran; empty: none
};

// The first layers of a model that has processed the prefix, over its state.
class TimedExit final : public TimedRow {
 public:
  TimedExit(EarlyExitDrafter& drafter, TimedModel& target, model::TransformerModel& model,
            const CalibrationContext& context)
      : TimedRow(drafter, context), model_(model) {
    const model::TokenBatch nothing;
    drafter.prefill({nothing, 1, rows_, target.state().capacity(), nullptr, &target.state()});
  }

  // Runs the remaining layers of the drafted tokens and of the token before them; without drafts all layers, as plain
  // decoding does.
  double verify(TimedModel& target, int64_t count) override {
    if (count == 1) return target.run(1);
    model::StepInput input;
    input.tokens = tokens(count, model_.info().device);
    input.new_tokens = {count};
    synchronize(model_.info().device);
    const Stopwatch watch;
    most_likely(drafter_.run_target(model_, input, target.state()).logits).to(at::kCPU);
    return watch.seconds();
  }

 private:
  model::TransformerModel& model_;
};

class LoadedExit final : public LoadedDrafter {
 public:
  explicit LoadedExit(int64_t layers) : layers_(layers) {}

  std::string name() const override { return "exit:" + std::to_string(layers_); }
  int64_t inside_target() const override { return layers_; }

  void check(const DraftTarget& target, Problems& problems) const override {
    if (transformer_of(target.model, "drafter " + name(), problems) == nullptr) return;
    const model::ModelInfo& info = target.model.info();
    if (layers_ <= info.layers) return;
    problems.add({"model " + info.name, "the exit layer is outside the model",
                  fmt::format("a layer from 1 to {}, the model's decoder layers", info.layers),
                  "exit layer " + std::to_string(layers_), "each layer drafted with saves less"});
  }

  std::unique_ptr<Drafter> make(const DraftTarget& target) const override {
    return std::make_unique<EarlyExitDrafter>(inside_model(target.model), layers_, target.exits);
  }

  // Over the one state that both share.
  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context,
                       int64_t max_tokens) const override {
    const model::DecodingGuard guard;
    TimedModel verifier(target.model, context, max_tokens);
    EarlyExitDrafter drafter(inside_model(target.model), layers_, target.exits);
    TimedExit timed(drafter, verifier, inside_model(target.model), context);
    return measure_rounds(verifier, timed, max_tokens);
  }

  // From one pass: the exit reads the target's hidden states of its layer.
  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t /*block*/) const override {
    const at::NoGradGuard no_grad;
    const model::TransformerModel& model = inside_model(target.model);
    AlphaSums sums(warping);
    for_each_batch({texts.sources, texts.outputs, {layers_}}, kForcedRows, [&](const ForcedBatch& batch) {
      TeacherForcing forcing(target.model, batch);
      sums.add_batch(forcing, batch, [&](int64_t width) {
        const model::StepOutput output = forcing.next_output(width);
        return LogitsPair{output.logits, model::exit_logits(model, target.exits, layers_, output.hidden.front())};
      });
    });
    return sums.mean();
  }

 private:
  int64_t layers_;
};

}  // namespace

SharedDrafter exit_drafter(int64_t layers) {
  return std::make_shared<LoadedExit>(layers);
}

}  // namespace draftsmith::infer
