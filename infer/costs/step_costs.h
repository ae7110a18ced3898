// Times of decoder steps in the middle of a typical output: what they are, and how they are measured. They give the
// verification curve and the cost ratio.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "infer/drafters/drafter.h"
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

// Times of rounds of 0, 1, ... draft steps and the target's step that verifies them.
class RoundTimes {
 public:
  // Adds a round of `tokens` - 1 draft steps that took `drafting` seconds together, and a step of `tokens` tokens.
  void add(int64_t tokens, double drafting, double verifying);
  // Returns medians. A round of every number of tokens up to the largest must have been added.
  StepCosts medians() const;

 private:
  std::vector<std::vector<double>> verifying_;  // by tokens - 1
  std::vector<std::vector<double>> drafting_;   // likewise; of one token empty
};

inline constexpr int64_t kCalibrationWarmup = 3;  // untimed repetitions before the timed ones
inline constexpr int64_t kCalibrationRepetitions = 15;

// What a calibration step works on: a source (empty for decoder-only models) and the tokens before the step.
struct CalibrationContext {
  std::vector<int64_t> source;
  std::vector<int64_t> prefix;  // at least one token
  int64_t rows = 1;             // of the batch, all equal
};

struct CalibrationState {
  model::EncoderStates encoder;  // encoder-decoder
  std::unique_ptr<model::DecodeState> state;
  model::StepOutput output;  // of the step that read `tokens`; empty without any
};

struct CalibrationSize {
  int64_t capacity = 0;  // tokens a row can hold
  int64_t rows = 1;
};

// Returns a batch of equal rows on the model's device.
model::TokenBatch equal_rows(const model::LanguageModel& model, std::span<const int64_t> tokens, int64_t rows = 1);

// Returns the model after `tokens`, which keeps the hidden states of `hidden_layers`.
CalibrationState state_after(model::LanguageModel& model, std::span<const int64_t> source,
                             std::span<const int64_t> tokens, const CalibrationSize& size,
                             const std::vector<int64_t>& hidden_layers = {});

// Returns `rows` lists of random ids, the same for the same arguments.
std::vector<std::vector<int64_t>> random_sources(int64_t rows, int64_t tokens, int64_t vocabulary);

struct ContextSize {
  int64_t rows = 1;
  int64_t source = 32;  // tokens of the source; decoder-only models ignore it
  int64_t length = 32;  // tokens before the step, at least 1
};

// Returns a context of random ids, the same for the same model and size.
CalibrationContext random_context(const model::ModelInfo& model, const ContextSize& size);

// A drafter after a prefix, whose draft steps are timed.
class TimedDrafter {
 public:
  virtual ~TimedDrafter() = default;
  // Drafts one token. Returns the seconds until it is on the host.
  virtual double draft() = 0;
  // Gives the drafter the output of the target's step of `tokens` tokens. Returns the seconds that reading it took.
  virtual double observe(const model::StepOutput& /*output*/, int64_t /*tokens*/) { return 0; }
  // Goes back to the prefix.
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
  double draft() override { return run(1); }
  void go_back() override;

  // Output of the last step; the prefix is the first one.
  const model::StepOutput& output() const { return prepared_.output; }
  // Encoder states; nullptr: decoder-only.
  const model::EncoderStates* encoder() const;

 private:
  model::StepInput input_of(int64_t tokens, model::Logits logits) const;

  model::LanguageModel& model_;
  std::vector<int64_t> hidden_layers_;
  int64_t rows_ = 1;
  int64_t length_ = 0;
  int64_t token_ = 0;
  CalibrationState prepared_;
};

// Returns the median seconds of steps in rounds as decoding runs them: L-1 draft steps, then one step of the target
// with L tokens, for L = 1..max_tokens in turn, so that each model finds the caches as the other left them. target[0]
// is a one-token step after another one, as in greedy decoding. Logits everywhere.
StepCosts measure_rounds(TimedModel& target, TimedDrafter& drafter, int64_t max_tokens);

// Measures rounds after the context's prefix with a drafter that is a model.
StepCosts measure_step_costs(model::LanguageModel& target, model::LanguageModel& drafter,
                             const CalibrationContext& context, int64_t max_tokens);
// Measures rounds with a drafter that proposes tokens (Drafter::next_tokens).
StepCosts measure_step_costs(model::LanguageModel& target, Drafter& drafter, const CalibrationContext& context,
                             int64_t max_tokens);

}  // namespace draftsmith::infer
