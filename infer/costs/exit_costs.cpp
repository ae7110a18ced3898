#include "infer/costs/exit_costs.h"

#include <algorithm>
#include <span>

#include "base/device.h"
#include "base/statistics.h"
#include "base/timing.h"
#include "infer/drafters/early_exit_drafter.h"
#include "infer/loop/vocabulary.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::infer {
namespace {

// A model after the prefix but its last token, which is drafted from again and again.
class PreparedExit {
 public:
  PreparedExit(const ExitDrafting& drafting, const CalibrationContext& context, int64_t room)
      : target_(drafting.model),
        device_(target_.info().device),
        drafter_(target_, drafting.layers, drafting.exits),
        rows_(1) {
    const auto known = mask_unknown_ids(drafting.model.info(), std::vector{context.source, context.prefix});
    rows_.front().tokens = known[1];
    const auto before = std::span(known[1]).first(known[1].size() - 1);
    prepared_ = state_after(drafting.model, known[0], before, std::ssize(known[1]) + room);
    state_ = prepared_.state.get();
    const model::TokenBatch nothing;
    drafter_.prefill({nothing, 1, rows_, state_->capacity(), nullptr, state_});
  }

  // Seconds of one draft, until it is on the host.
  double draft() {
    const std::vector<int64_t> active{1};
    const Stopwatch watch;
    const at::Tensor logits = drafter_.next_logits({rows_, drafted_, active, {}});
    logits.argmax(-1).to(at::kCPU);
    const double seconds = watch.seconds();
    drafted_.push_back(at::full({1}, token(), at::TensorOptions(at::kLong).device(device_)));
    return seconds;
  }

  // Seconds of running what is left of the draft and of the token before it.
  double verify() {
    const auto tokens = std::ssize(drafted_) + 1;
    model::StepInput input;
    input.tokens = at::full({1, tokens}, token(), at::TensorOptions(at::kLong).device(device_));
    input.new_tokens = {tokens};
    synchronize(device_);
    const Stopwatch watch;
    const model::StepOutput output = drafter_.run_target(target_, input, *state_);
    output.logits.argmax(-1).to(at::kCPU);
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

}  // namespace

StepCosts measure_exit_costs(const ExitDrafting& drafting, const CalibrationContext& context, int64_t max_tokens,
                             int64_t repetitions) {
  const model::DecodingGuard guard;
  PreparedExit prepared(drafting, context, max_tokens);
  std::vector<std::vector<double>> verifying(static_cast<size_t>(max_tokens));
  std::vector<double> draft_seconds;
  for (int64_t repetition = 0; repetition < kCalibrationWarmup + repetitions; ++repetition) {
    for (int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
      prepared.go_back();
      double drafted = 0;
      for (int64_t j = 1; j < tokens; ++j) drafted += prepared.draft();
      const double verified = prepared.verify();
      if (repetition < kCalibrationWarmup) continue;
      if (tokens > 1) draft_seconds.push_back(drafted / static_cast<double>(tokens - 1));
      verifying[static_cast<size_t>(tokens - 1)].push_back(verified);
    }
  }
  StepCosts costs;
  for (auto& seconds : verifying) costs.target.push_back(median(std::move(seconds)));
  costs.draft = draft_seconds.empty() ? 0 : median(std::move(draft_seconds));
  return costs;
}

}  // namespace draftsmith::infer
