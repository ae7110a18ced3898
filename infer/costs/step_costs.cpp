#include "infer/costs/step_costs.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/device.h"
#include "base/random.h"
#include "base/timing.h"
#include "base/util.h"
#include "infer/drafters/drafter.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
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

void RoundTimes::add(int64_t tokens, double drafting, double verifying) {
  const auto place = static_cast<size_t>(tokens - 1);
  verifying_.resize(std::max(verifying_.size(), place + 1));
  drafting_.resize(verifying_.size());
  verifying_[place].push_back(verifying);
  if (tokens > 1) drafting_[place].push_back(drafting);
}

StepCosts RoundTimes::medians() const {
  StepCosts costs;
  std::vector<double> one;  // draft step, the mean of each round
  for (size_t place = 0; place < verifying_.size(); ++place) {
    costs.target.push_back(median(verifying_[place]));
    if (place == 0) continue;
    costs.drafts.push_back(median(drafting_[place]));
    for (const double seconds : drafting_[place]) one.push_back(seconds / static_cast<double>(place));
  }
  costs.draft = one.empty() ? 0 : median(one);
  return costs;
}

namespace {

// A drafter that proposes tokens, after the prefix.
class TimedProposer final : public TimedDrafter {
 public:
  TimedProposer(Drafter& drafter, const model::ModelInfo& target, const CalibrationContext& context)
      : probe_(drafter, target, context.source, context.prefix), token_(context.prefix.back()) {}

  double draft() override {
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

CalibrationState state_after(model::LanguageModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> tokens, const CalibrationSize& size,
                             const std::vector<int64_t>& hidden_layers) {
  CalibrationState prepared;
  if (model.info().encoder_decoder) {
    prepared.encoder = model.encode(equal_rows(model, source, size.rows));
    prepared.state = model.begin(prepared.encoder, size.capacity);
  } else {
    prepared.state = model.begin(size.rows, size.capacity);
  }
  if (tokens.empty()) return prepared;
  const model::TokenBatch batch = equal_rows(model, tokens, size.rows);
  prepared.output = model.step({batch.tokens, batch.lengths, model::Logits::kNone, hidden_layers}, *prepared.state);
  return prepared;
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

TimedModel::TimedModel(model::LanguageModel& model, const CalibrationContext& context, int64_t room,
                       std::vector<int64_t> hidden_layers)
    : model_(model), hidden_layers_(std::move(hidden_layers)), rows_(context.rows) {
  const model::DecodingGuard guard;
  const auto known = mask_unknown_ids(model.info(), std::vector{context.source, context.prefix});
  const std::vector<int64_t>& prefix = known[1];
  length_ = static_cast<int64_t>(prefix.size());
  token_ = prefix.back();
  prepared_ = state_after(model, known[0], prefix, {length_ + room, rows_}, hidden_layers_);
}

model::StepInput TimedModel::input_of(int64_t tokens, model::Logits logits) const {
  const auto batch = equal_rows(model_, std::vector<int64_t>(static_cast<size_t>(tokens), token_), rows_);
  return {batch.tokens, batch.lengths, logits, hidden_layers_};
}

double TimedModel::run(int64_t tokens, model::Logits logits) {
  const model::DecodingGuard guard;
  const model::StepInput input = input_of(tokens, logits);
  synchronize(model_.info().device);
  const Stopwatch watch;
  prepared_.output = model_.step(input, *prepared_.state);
  if (prepared_.output.logits.defined()) {
    most_likely(prepared_.output.logits).to(at::kCPU);
  } else {
    synchronize(model_.info().device);
  }
  return watch.seconds();
}

void TimedModel::go_back() {
  prepared_.state->rollback(std::vector<int64_t>(static_cast<size_t>(rows_), length_));
}

const model::EncoderStates* TimedModel::encoder() const {
  return model_.info().encoder_decoder ? &prepared_.encoder : nullptr;
}

StepCosts measure_rounds(TimedModel& target, TimedDrafter& drafter, int64_t max_tokens) {
  RoundTimes times;
  for (int64_t repetition = 0; repetition < kCalibrationWarmup + kCalibrationRepetitions; ++repetition) {
    target.go_back();
    target.run(1);
    for (int64_t tokens = 1; tokens <= max_tokens; ++tokens) {
      target.go_back();
      drafter.go_back();
      double drafted = 0;
      for (int64_t j = 1; j < tokens; ++j) drafted += drafter.draft();
      double verified = target.run(tokens);
      if (tokens > 1) verified += drafter.observe(target.output(), tokens);
      if (repetition >= kCalibrationWarmup) times.add(tokens, drafted, verified);
    }
  }
  return times.medians();
}

StepCosts measure_step_costs(model::LanguageModel& target, model::LanguageModel& drafter,
                             const CalibrationContext& context, int64_t max_tokens) {
  const model::DecodingGuard guard;
  TimedModel verifier(target, context, max_tokens);
  TimedModel proposer(drafter, context, max_tokens);
  return measure_rounds(verifier, proposer, max_tokens);
}

StepCosts measure_step_costs(model::LanguageModel& target, Drafter& drafter, const CalibrationContext& context,
                             int64_t max_tokens) {
  const model::DecodingGuard guard;
  TimedModel verifier(target, context, max_tokens);
  TimedProposer proposer(drafter, target.info(), context);
  return measure_rounds(verifier, proposer, max_tokens);
}

}  // namespace draftsmith::infer
