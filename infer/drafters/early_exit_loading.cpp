#include "infer/drafters/early_exit_loading.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/device.h"
#include "base/timing.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/early_exit_drafter.h"
#include "infer/forced/alpha_sums.h"
#include "infer/loop/vocabulary.h"
#include "infer/sampling/sampling.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::infer {

namespace {

// A model and which of its layers draft.
struct ExitDrafting {
  model::TransformerModel& model;
  int64_t layers = 1;                   // 1..N
  const model::Exits* exits = nullptr;  // nullptr: the model's own final norm and head
};

// A model after the prefix but its last token, from which each draft begins.
class TimedExit {
 public:
  TimedExit(const ExitDrafting& drafting, const CalibrationContext& context, int64_t room)
      : target_(drafting.model),
        device_(target_.info().device),
        drafter_(target_, drafting.layers, drafting.exits),
        rows_(1) {
    const auto known = mask_unknown_ids(drafting.model.info(), std::vector{context.source, context.prefix});
    rows_.front().tokens = known[1];
    const auto before = std::span(known[1]).first(known[1].size() - 1);
    prepared_ = state_after(drafting.model, known[0], before, {std::ssize(known[1]) + room});
    state_ = prepared_.state.get();
    const model::TokenBatch nothing;
    drafter_.prefill({nothing, 1, rows_, state_->capacity(), nullptr, state_});
  }

  // Drafts one token. Returns the seconds until it is on the host.
  double draft() {
    const std::vector<int64_t> active{1};
    const Stopwatch watch;
    const at::Tensor logits = drafter_.next_logits({rows_, drafted_, active, {}});
    most_likely(logits).to(at::kCPU);
    const double seconds = watch.seconds();
    drafted_.push_back(at::full({1}, token(), at::TensorOptions(at::kLong).device(device_)));
    return seconds;
  }

  // Runs all layers of one token, as plain decoding does. Returns the seconds.
  double step() {
    const at::Tensor tokens = at::full({1, 1}, token(), at::TensorOptions(at::kLong).device(device_));
    const model::StepInput input{tokens, {1}, model::Logits::kLast, {}};
    synchronize(device_);
    const Stopwatch watch;
    most_likely(target_.step(input, *state_).logits).to(at::kCPU);
    return watch.seconds();
  }

  // Runs the remaining layers of the drafted tokens and of the token before them. Returns the seconds.
  double verify() {
    const auto tokens = std::ssize(drafted_) + 1;
    model::StepInput input;
    input.tokens = at::full({1, tokens}, token(), at::TensorOptions(at::kLong).device(device_));
    input.new_tokens = {tokens};
    synchronize(device_);
    const Stopwatch watch;
    const model::StepOutput output = drafter_.run_target(target_, input, *state_);
    most_likely(output.logits).to(at::kCPU);
    return watch.seconds();
  }

  void go_back() {
    const std::vector<int64_t> length{rows_.front().length()};
    state_->rollback(std::vector<int64_t>{length.front() - 1});
    drafted_.clear();
    drafter_.observe({rows_, model::StepOutput{}, length});
  }

 private:
  int64_t token() const { return rows_.front().tokens.back(); }

  model::TransformerModel& target_;
  at::Device device_;
  EarlyExitDrafter drafter_;
  std::vector<Row> rows_;
  std::vector<at::Tensor> drafted_;
  CalibrationState prepared_;
  model::DecodeState* state_ = nullptr;  // in it
};

// Like measure_step_costs(), over the one state that both share: target[L-1] is the verification of L-1 drafted tokens,
// whose first layers have run; target[0] is a step of plain decoding.
StepCosts measure_exit_costs(const ExitDrafting& drafting, const CalibrationContext& context, int64_t max_tokens) {
  const model::DecodingGuard guard;
  TimedExit prepared(drafting, context, max_tokens);
  RoundTimes times;
  for (int64_t repetition = 0; repetition < kCalibrationWarmup + kCalibrationRepetitions; ++repetition) {
    for (int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
      prepared.go_back();
      double drafted = 0;
      for (int64_t j = 1; j < tokens; ++j) drafted += prepared.draft();
      const double verified = tokens == 1 ? prepared.step() : prepared.verify();
      if (repetition >= kCalibrationWarmup) times.add(tokens, drafted, verified);
    }
  }
  return times.medians();
}

// Like measure_forced_alpha(), from one pass: the exit reads the target's hidden states of its layer.
ForcedAlpha alpha_forced_exit(const ExitDrafting& drafting, const ForcedBatch& texts, const Warping& warping) {
  const at::NoGradGuard no_grad;
  AlphaSums sums(warping);
  for_each_batch({texts.sources, texts.outputs, {drafting.layers}}, kForcedRows, [&](const ForcedBatch& batch) {
    TeacherForcing target(drafting.model, batch);
    sums.add_batch(target, batch, [&](int64_t width) {
      const model::StepOutput output = target.next_output(width);
      return LogitsPair{output.logits,
                        model::exit_logits(drafting.model, drafting.exits, drafting.layers, output.hidden.front())};
    });
  });
  return sums.mean();
}

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
    const auto [model, layers, exits] = drafting(target);
    return std::make_unique<EarlyExitDrafter>(model, layers, exits);
  }

  StepCosts step_costs(const DraftTarget& target, const CalibrationContext& context,
                       int64_t max_tokens) const override {
    return measure_exit_costs(drafting(target), context, max_tokens);
  }

  ForcedAlpha forced_alpha(const DraftTarget& target, const ForcedBatch& texts, const Warping& warping,
                           int64_t /*block*/) const override {
    return alpha_forced_exit(drafting(target), texts, warping);
  }

 private:
  ExitDrafting drafting(const DraftTarget& target) const {
    auto* model = dynamic_cast<model::TransformerModel*>(&target.model);
    if (model == nullptr) throw std::logic_error("an early exit drafts inside a transformer");
    return {*model, layers_, target.exits};
  }

  int64_t layers_;
};

}  // namespace

SharedDrafter exit_drafter(int64_t layers) {
  return std::make_shared<LoadedExit>(layers);
}

model::TransformerModel* transformer_of(model::LanguageModel& target, const std::string& where, Problems& problems) {
  auto* model = dynamic_cast<model::TransformerModel*>(&target);
  if (model != nullptr) return model;
  problems.add({where, "needs the hidden states of the model's layers", "a transformer", target.info().name, ""});
  return nullptr;
}

}  // namespace draftsmith::infer
