#include "bench/support/timed_step.h"

#include "base/device.h"
#include "base/statistics.h"
#include "base/timing.h"
#include "bench/support/random_model.h"
#include "model/transformer/decoding_guard.h"

namespace draftsmith::bench {

namespace {

// Returns the rows as int64 [B,S] on the model's device.
model::TokenBatch batch_of(const model::TransformerModel& model, const DecodingSize& size) {
  std::vector<int64_t> flat;
  for (const auto& row : random_sources(size.rows, size.source, model.info().vocabulary)) {
    flat.insert(flat.end(), row.begin(), row.end());
  }
  const at::Tensor tokens = at::tensor(flat, at::kLong).view({size.rows, size.source});
  return {tokens.to(model.info().device), std::vector<int64_t>(static_cast<size_t>(size.rows), size.source)};
}

}  // namespace

TimedStep::TimedStep(model::TransformerModel& model, const DecodingSize& size) : model_(model), size_(size) {
  const model::DecodingGuard guard;
  const model::TokenBatch batch = batch_of(model, size);
  const int64_t capacity = size.source + size.most_tokens;
  state_ = model.info().encoder_decoder ? model.begin(model.encode(batch), capacity) : model.begin(size.rows, capacity);
  model.step({batch.tokens, batch.lengths, model::Logits::kNone, {}}, *state_);
}

model::StepInput TimedStep::input_of(int64_t tokens, model::Logits logits) const {
  const at::Tensor ids = at::full({size_.rows, tokens}, 17, at::TensorOptions(model_.info().device).dtype(at::kLong));
  return {ids, std::vector<int64_t>(static_cast<size_t>(size_.rows), tokens), logits, {}};
}

double TimedStep::run(int64_t tokens, model::Logits logits) {
  const model::DecodingGuard guard;
  const model::StepInput input = input_of(tokens, logits);
  synchronize(model_.info().device);
  const Stopwatch watch;
  const model::StepOutput output = model_.step(input, *state_);
  if (output.logits.defined()) {
    output.logits.argmax(-1).to(at::kCPU);
  } else {
    synchronize(model_.info().device);
  }
  const double seconds = watch.seconds();
  state_->rollback(std::vector<int64_t>(static_cast<size_t>(size_.rows), size_.source));
  return seconds;
}

double TimedStep::median_of(int64_t rounds, int64_t tokens) {
  for (int i = 0; i < 2; ++i) run(tokens);
  std::vector<double> seconds;
  for (int64_t i = 0; i < rounds; ++i) seconds.push_back(run(tokens));
  return median(seconds);
}

}  // namespace draftsmith::bench
