// Times of decoder steps in the middle of a typical output: what they are, and how they are measured. They give the
// verification curve and the cost ratio.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aten.h"
#include "infer/drafters/drafter.h"
#include "infer/loop/rows.h"
#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// Times of one decoder step at a typical length, seconds, as they are while drafter and target take turns. With
// target = {1} and draft = c this is the papers' assumption that verifying costs as much as one token.
struct StepCosts {
  std::vector<double> target;       // target[L-1]: a step of L tokens after L-1 drafted ones; target[0]: greedy's
  double draft = 0;                 // the drafter's step of one token; 0: no drafter
  std::vector<double> drafts = {};  // drafts[n-1]: n draft steps, the first of which follows a step of the target

  double cost_ratio() const { return draft / target.at(0); }
  // Returns the seconds of a round's draft steps; linear between measured numbers of steps. Where none is measured each
  // takes `draft`.
  double drafting(double steps) const;
  // Time of an L-token target step relative to a one-token step; linear between measured lengths, beyond them too but
  // never falling.
  double relative_target(double tokens) const;
};

// What a calibration step works on: a source (empty for decoder-only models) and the tokens before the step.
struct CalibrationContext {
  std::vector<int64_t> source;
  std::vector<int64_t> prefix;  // at least one token
  int64_t rows = 1;             // of the batch, all equal
};

// Returns a batch of equal rows on the model's device.
model::TokenBatch equal_rows(const model::LanguageModel& model, std::span<const int64_t> tokens, int64_t rows = 1);

// Returns `rows` lists of random ids, the same for the same arguments.
std::vector<std::vector<int64_t>> random_sources(int64_t rows, int64_t tokens, int64_t vocabulary);

struct ContextSize {
  int64_t rows = 1;
  int64_t source = 32;  // tokens of the source; decoder-only models ignore it
  int64_t length = 32;  // tokens before the step, at least 1
};

// Returns a context of random ids, the same for the same model and size.
CalibrationContext random_context(const model::ModelInfo& model, const ContextSize& size);

class TimedModel;

// A drafter after a prefix, whose draft steps are timed.
class TimedDrafter {
 public:
  virtual ~TimedDrafter() = default;
  // Drafts one token of the `left` that its window lacks. Returns the seconds until it is on the host.
  virtual double draft(int64_t left) = 0;
  // Runs the target's step of `tokens` tokens, all but one of them drafted. Returns the seconds that it took, and that
  // the drafter took to read its output.
  virtual double verify(TimedModel& target, int64_t tokens);
  // Goes back to the prefix, as the target has done.
  virtual void go_back() = 0;
};

// A model that has processed a prefix in each row. As a drafter it drafts the prefix's last token again and again.
class TimedModel final : public TimedDrafter {
 public:
  // Leaves room for `room` tokens after the prefix, and keeps the hidden states of `hidden_layers`.
  TimedModel(model::LanguageModel& model, const CalibrationContext& context, int64_t room,
             std::vector<int64_t> hidden_layers = {});

  // Runs a step of `tokens` tokens a row. Returns the seconds until the most likely next tokens are on the host;
  // without logits, until the device has done the step.
  double run(int64_t tokens, model::Logits logits = model::Logits::kAll);
  double draft(int64_t /*left*/) override { return run(1); }
  void go_back() override;

  // Output of the last step; the prefix is the first one.
  const model::StepOutput& output() const { return output_; }
  // Encoder states; nullptr: decoder-only.
  const model::EncoderStates* encoder() const { return model_.info().encoder_decoder ? &encoder_ : nullptr; }
  model::DecodeState& state() { return *state_; }

 private:
  model::LanguageModel& model_;
  std::vector<int64_t> hidden_layers_;
  int64_t rows_ = 1;
  int64_t length_ = 0;
  int64_t token_ = 0;
  model::EncoderStates encoder_;
  std::unique_ptr<model::DecodeState> state_;
  model::StepOutput output_;
};

// A drafter with logits at work on one row, whose last token, the prefix's last one again, the target has not
// processed.
class TimedRow : public TimedDrafter {
 public:
  TimedRow(Drafter& drafter, const CalibrationContext& context);
  double draft(int64_t left) override;
  void go_back() override;

 protected:
  // Returns `count` times the last token, int64 [1,count] on `device`.
  at::Tensor tokens(int64_t count, at::Device device) const;

  Drafter& drafter_;
  std::vector<int64_t> committed_;
  std::vector<Row> rows_;

 private:
  std::vector<at::Tensor> drafted_;
};

// Returns the median seconds of steps in rounds as decoding runs them: L-1 draft steps, then one step of the target
// with L tokens, for L = 1..max_tokens in turn, so that each model finds the caches as the other left them. target[0]
// is a one-token step after another one, as in greedy decoding. Logits everywhere.
StepCosts measure_rounds(TimedModel& target, TimedDrafter& drafter, int64_t max_tokens);

// Measures rounds after the context's prefix with a drafter that is a model.
StepCosts measure_step_costs(model::LanguageModel& target, model::LanguageModel& drafter,
                             const CalibrationContext& context, int64_t max_tokens);

}  // namespace draftsmith::infer
