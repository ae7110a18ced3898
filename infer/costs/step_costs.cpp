#include "infer/costs/step_costs.h"

#include <algorithm>
#include <cmath>

#include "base/device.h"
#include "base/random.h"
#include "base/timing.h"
#include "base/util.h"
#include "infer/loop/processors.h"
#include "infer/sampling/sampling.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::infer {

double StepCosts::drafting(double steps) const {
  const double last = std::floor(steps);
  const auto seconds = [this](double count) {
    const auto measured = static_cast<double>(drafts.size());
    if (count < 1 || drafts.empty()) return count * draft;
    return drafts[static_cast<size_t>(std::min(count, measured)) - 1] + std::max(count - measured, 0.0) * draft;
  };
  return seconds(last) + (steps - last) * (seconds(last + 1) - seconds(last));
}

double StepCosts::relative_target(double tokens) const {
  if (target.size() < 2) return 1;
  const double position = std::max(tokens - 1, 0.0);
  const auto below = std::min(static_cast<size_t>(position), target.size() - 2);
  const double share = position - static_cast<double>(below);
  const double slope = target[below + 1] - target[below];
  // A curve that falls at its end is noise, not a promise: continued, it would fall below zero.
  if (share > 1) return (target.back() + (share - 1) * std::max(slope, 0.0)) / target[0];
  return (target[below] + share * slope) / target[0];
}

namespace {

// A drafter that proposes tokens, after the prefix.
class TimedProposer final : public TimedDrafter {
 public:
  TimedProposer(Drafter& drafter, const model::ModelInfo& target, const CalibrationContext& context)
      : probe_(drafter, target, context.source, context.prefix), token_(context.prefix.back()) {}

  double draft(int64_t /*left*/) override {
    const Stopwatch watch;
    const int64_t proposed = probe_.next_token();
    const double seconds = watch.seconds();
    probe_.draft(proposed == kNoProposal ? token_ : proposed);
    return seconds;
  }

  void go_back() override { probe_.forget_draft(); }

 private:
  DrafterProbe probe_;
  int64_t token_;
};

}  // namespace

model::TokenBatch equal_rows(const model::LanguageModel& model, std::span<const int64_t> tokens, int64_t rows) {
  std::vector<int64_t> flat;
  for (int64_t row = 0; row < rows; ++row) flat.insert(flat.end(), tokens.begin(), tokens.end());
  return {to_device(flat, {rows, std::ssize(tokens)}, model.info().device),
          std::vector<int64_t>(static_cast<size_t>(rows), std::ssize(tokens))};
}

std::vector<std::vector<int64_t>> random_sources(int64_t rows, int64_t tokens, int64_t vocabulary) {
  RandomSequence random{CounterRandom(1, "bench sources")};
  const int64_t first = std::min<int64_t>(3, vocabulary - 1);  // ids below it control the model
  std::vector<std::vector<int64_t>> sources(static_cast<size_t>(rows));
  for (auto& source : sources) {
    for (int64_t t = 0; t < tokens; ++t) {
      source.push_back(first + static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary - first))));
    }
  }
  return sources;
}

CalibrationContext random_context(const model::ModelInfo& model, const ContextSize& size) {
  CalibrationContext context;
  context.rows = size.rows;
  if (model.encoder_decoder) context.source = random_sources(1, size.source, model.vocabulary).front();
  context.prefix = random_sources(1, size.length, model.vocabulary).front();
  return context;
}

double TimedDrafter::verify(TimedModel& target, int64_t tokens) {
  return target.run(tokens);
}

TimedModel::TimedModel(model::LanguageModel& model, const CalibrationContext& context, int64_t room,
                       std::vector<int64_t> hidden_layers)
    : model_(model), hidden_layers_(std::move(hidden_layers)), rows_(context.rows) {
  const model::DecodingGuard guard;
  const auto known = mask_unknown_ids(model.info(), std::vector{context.source, context.prefix});
  length_ = std::ssize(known[1]);
  token_ = known[1].back();
  if (model.info().encoder_decoder) {
    encoder_ = model.encode(equal_rows(model, known[0], rows_));
    state_ = model.begin(encoder_, length_ + room);
  } else {
    state_ = model.begin(rows_, length_ + room);
  }
  const model::TokenBatch prefix = equal_rows(model, known[1], rows_);
  output_ = model.step({prefix.tokens, prefix.lengths, model::Logits::kNone, hidden_layers_}, *state_);
}

double TimedModel::run(int64_t tokens, model::Logits logits) {
  const model::DecodingGuard guard;
  const auto batch = equal_rows(model_, std::vector<int64_t>(static_cast<size_t>(tokens), token_), rows_);
  const model::StepInput input{batch.tokens, batch.lengths, logits, hidden_layers_};
  synchronize(model_.info().device);
  const Stopwatch watch;
  output_ = model_.step(input, *state_);
  if (output_.logits.defined()) {
    most_likely(output_.logits).to(at::kCPU);
  } else {
    synchronize(model_.info().device);
  }
  return watch.seconds();
}

void TimedModel::go_back() {
  state_->rollback(std::vector<int64_t>(static_cast<size_t>(rows_), length_));
}

TimedRow::TimedRow(Drafter& drafter, const CalibrationContext& context)
    : drafter_(drafter), committed_(context.prefix), rows_(1) {
  committed_.push_back(committed_.back());
  rows_.front().tokens = committed_;
}

at::Tensor TimedRow::tokens(int64_t count, at::Device device) const {
  return at::full({1, count}, committed_.back(), at::TensorOptions(at::kLong).device(device));
}

double TimedRow::draft(int64_t left) {
  const std::vector<int64_t> active{1}, limits{std::ssize(drafted_) + left};
  const Stopwatch watch;
  const at::Tensor logits = drafter_.next_logits({rows_, drafted_, active, {}, limits});
  most_likely(logits).to(at::kCPU);
  const double seconds = watch.seconds();
  drafted_.push_back(tokens(1, logits.device()).squeeze(0));
  return seconds;
}

void TimedRow::go_back() {
  drafted_.clear();
  rows_.front().tokens = committed_;
  drafter_.observe({rows_, {}, std::vector<int64_t>{std::ssize(committed_)}});
}

StepCosts measure_rounds(TimedModel& target, TimedDrafter& drafter, int64_t max_tokens) {
  constexpr int64_t kWarmup = 3;  // untimed repetitions before the timed ones
  constexpr int64_t kRepetitions = 15;
  const auto most = static_cast<size_t>(max_tokens);
  std::vector<std::vector<double>> verifying(most);  // by tokens - 1
  std::vector<std::vector<double>> drafting(most);   // likewise; of one token empty
  std::vector<double> one;                           // draft step, the mean of each round
  for (int64_t repetition = 0; repetition < kWarmup + kRepetitions; ++repetition) {
    target.go_back();
    target.run(1);
    for (size_t place = 0; place < most; ++place) {
      target.go_back();
      drafter.go_back();
      double drafted = 0;
      for (size_t left = place; left > 0; --left) drafted += drafter.draft(static_cast<int64_t>(left));
      const double verified = drafter.verify(target, static_cast<int64_t>(place) + 1);
      if (repetition < kWarmup) continue;
      verifying[place].push_back(verified);
      if (place == 0) continue;
      drafting[place].push_back(drafted);
      one.push_back(drafted / static_cast<double>(place));
    }
  }
  StepCosts costs;
  for (const auto& seconds : verifying) costs.target.push_back(median(seconds));
  for (size_t place = 1; place < most; ++place) costs.drafts.push_back(median(drafting[place]));
  if (!one.empty()) costs.draft = median(one);
  return costs;
}

StepCosts measure_step_costs(model::LanguageModel& target, model::LanguageModel& drafter,
                             const CalibrationContext& context, int64_t max_tokens) {
  const model::DecodingGuard guard;
  TimedModel verifier(target, context, max_tokens);
  TimedModel proposer(drafter, context, max_tokens);
  return measure_rounds(verifier, proposer, max_tokens);
}

StepCosts LoadedDrafter::step_costs(const DraftTarget& target, const CalibrationContext& context,
                                    int64_t max_tokens) const {
  if (model() != nullptr) return measure_step_costs(target.model, *model(), context, max_tokens);
  const model::DecodingGuard guard;
  TimedModel verifier(target.model, context, max_tokens);
  const std::unique_ptr<Drafter> drafter = make(target);
  TimedProposer proposer(*drafter, target.model.info(), context);
  return measure_rounds(verifier, proposer, max_tokens);
}

}  // namespace draftsmith::infer
