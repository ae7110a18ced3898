#include "infer/costs/step_costs.h"

#include <algorithm>
#include <type_traits>

#include "base/device.h"
#include "base/statistics.h"
#include "base/timing.h"
#include "infer/drafters/drafter_probe.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/loop/vocabulary.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::infer {
namespace {

// A model that has processed the prefix, and goes back to it when asked.
class PreparedModel {
 public:
  PreparedModel(model::LanguageModel& model, const CalibrationContext& context, int64_t room,
                std::vector<int64_t> hidden_layers = {})
      : model_(model), hidden_layers_(std::move(hidden_layers)) {
    const auto known = mask_unknown_ids(model.info(), std::vector{context.source, context.prefix});
    const std::vector<int64_t>& prefix = known[1];
    length_ = static_cast<int64_t>(prefix.size());
    token_ = prefix.back();
    prepared_ = state_after(model, known[0], prefix, length_ + room, hidden_layers_);
  }

  // Seconds of a step of so many tokens, until the most likely next tokens are on the host.
  double step(int64_t tokens) {
    const auto input = one_row(model_, std::vector<int64_t>(static_cast<size_t>(tokens), token_));
    synchronize(model_.info().device);
    const Stopwatch watch;
    prepared_.output = model_.step({input, {tokens}, model::Logits::kAll, hidden_layers_}, *prepared_.state);
    prepared_.output.logits.argmax(-1).to(at::kCPU);
    return watch.seconds();
  }

  // Of the last step, the prefix being the first one.
  const model::StepOutput& output() const { return prepared_.output; }
  const model::EncoderStates* encoder() const { return model_.info().encoder_decoder ? &prepared_.encoder : nullptr; }

  void go_back() { prepared_.state->rollback(std::vector<int64_t>{length_}); }

 private:
  model::LanguageModel& model_;
  std::vector<int64_t> hidden_layers_;
  int64_t length_ = 0;
  int64_t token_ = 0;
  CalibrationState prepared_;
};

// A drafter that is no model, after the prefix.
class PreparedDrafter {
 public:
  PreparedDrafter(Drafter& drafter, const model::ModelInfo& target, const CalibrationContext& context)
      : probe_(drafter, target, context.source, context.prefix), token_(context.prefix.back()) {}

  // Seconds of one draft.
  double step(int64_t) {
    const Stopwatch watch;
    const int64_t proposed = probe_.next_token();
    const double seconds = watch.seconds();
    probe_.draft(proposed == kNoProposal ? token_ : proposed);
    return seconds;
  }

  void go_back() { probe_.forget_draft(); }

 private:
  DrafterProbe probe_;
  int64_t token_;
};

// A Tandem secondary whose primary has processed the prefix. Its last token, the next to be drafted from, is drafted
// again and again.
class PreparedTandem {
 public:
  PreparedTandem(TandemDrafter& drafter, const PreparedModel& primary, const CalibrationContext& context, int64_t room)
      : drafter_(drafter), rows_(1), prefix_(context.prefix) {
    prefix_.push_back(prefix_.back());
    rows_[0].tokens = {prefix_.front()};
    const model::TokenBatch nothing;
    const DraftBegin begin{nothing, 1, rows_, std::ssize(prefix_) + room, primary.encoder(), nullptr};
    drafter_.encode(begin);
    drafter_.prefill(begin);
    rows_[0].tokens = prefix_;
    drafter_.observe({rows_, primary.output(), std::vector<int64_t>{1}});
  }

  // Seconds of one draft, until it is on the host.
  double step(int64_t) {
    const std::vector<int64_t> active{1};
    const Stopwatch watch;
    const auto logits = drafter_.next_logits({rows_, drafted_, active, {}});
    logits.argmax(-1).to(at::kCPU);
    const double seconds = watch.seconds();
    drafted_.push_back(at::full({1}, prefix_.back(), at::TensorOptions(at::kLong).device(logits.device())));
    return seconds;
  }

  // Seconds of writing what the primary's step of so many tokens gave.
  double take(const model::StepOutput& output, int64_t tokens) {
    const at::Device device = output.logits.device();
    const std::vector<int64_t> base{std::ssize(prefix_)};
    rows_[0].tokens.insert(rows_[0].tokens.end(), static_cast<size_t>(tokens), prefix_.back());
    synchronize(device);
    const Stopwatch watch;
    drafter_.observe({rows_, output, base});
    synchronize(device);
    return watch.seconds();
  }

  void go_back() {
    drafted_.clear();
    rows_[0].tokens = prefix_;
    drafter_.observe({rows_, {}, std::vector<int64_t>{std::ssize(prefix_)}});
  }

 private:
  TandemDrafter& drafter_;
  std::vector<Row> rows_;
  std::vector<int64_t> prefix_;
  std::vector<at::Tensor> drafted_;
};

// What a proposer does with the target's output: of models and tables nothing.
template <class Proposer>
double take(Proposer& proposer, const model::StepOutput& output, int64_t tokens) {
  if constexpr (std::is_same_v<Proposer, PreparedTandem>) {
    return tokens > 1 ? proposer.take(output, tokens) : 0;
  } else {
    return 0;
  }
}

template <class Proposer>
StepCosts measure_rounds(PreparedModel& verifier, Proposer& proposer, int64_t max_tokens, int64_t repetitions) {
  std::vector<std::vector<double>> verifying(static_cast<size_t>(max_tokens));
  std::vector<double> drafting;
  for (int64_t repetition = 0; repetition < kCalibrationWarmup + repetitions; ++repetition) {
    verifier.go_back();
    verifier.step(1);
    for (int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
      verifier.go_back();
      proposer.go_back();
      double drafted = 0;
      for (int64_t j = 1; j < tokens; ++j) drafted += proposer.step(1);
      double verified = verifier.step(tokens);
      verified += take(proposer, verifier.output(), tokens);
      if (repetition < kCalibrationWarmup) continue;
      if (tokens > 1) drafting.push_back(drafted / static_cast<double>(tokens - 1));
      verifying[static_cast<size_t>(tokens - 1)].push_back(verified);
    }
  }
  StepCosts costs;
  for (const auto& seconds : verifying) costs.target.push_back(median(seconds));
  costs.draft = drafting.empty() ? 0 : median(drafting);
  return costs;
}

}  // namespace

StepCosts measure_step_costs(model::LanguageModel& target, model::LanguageModel& drafter,
                             const CalibrationContext& context, int64_t max_tokens, int64_t repetitions) {
  const model::DecodingGuard guard;
  PreparedModel verifier(target, context, max_tokens);
  PreparedModel proposer(drafter, context, max_tokens);
  return measure_rounds(verifier, proposer, max_tokens, repetitions);
}

StepCosts measure_step_costs(model::LanguageModel& target, Drafter& drafter, const CalibrationContext& context,
                             int64_t max_tokens, int64_t repetitions) {
  const model::DecodingGuard guard;
  PreparedModel verifier(target, context, max_tokens);
  PreparedDrafter proposer(drafter, target.info(), context);
  return measure_rounds(verifier, proposer, max_tokens, repetitions);
}

StepCosts measure_tandem_costs(model::LanguageModel& target, model::TransformerModel& secondary,
                               const CalibrationContext& context, int64_t max_tokens, int64_t repetitions) {
  const model::DecodingGuard guard;
  TandemDrafter drafter(secondary);
  PreparedModel verifier(target, context, max_tokens, drafter.target_layers());
  PreparedTandem proposer(drafter, verifier, context, max_tokens);
  return measure_rounds(verifier, proposer, max_tokens, repetitions);
}

}  // namespace draftsmith::infer
