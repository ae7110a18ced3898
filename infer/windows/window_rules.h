// Window rules, which decide how many tokens are drafted before the target verifies: `fixed`, `dynamic`, `fallback`,
// `entropy`, `oracle` and `router`. The list of rules, and features of a
// drafter's distribution that they read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/device_tensors.h"
#include "base/error.h"
#include "base/registry.h"
#include "infer/sampling/sampling.h"
#include "infer/windows/window_rule.h"
#include "model/models/router.h"

namespace draftsmith::infer {

struct DecodeOptions;     // infer/decode_options.h
struct GenerationModels;  // infer/load_models.h

// Features of a drafter's distribution: its entropy and its most likely tokens, at temperature 1 without truncation.

// Returns the entropy in nats of each position: logits [N,V] -> fp64 [N] (fp32 on a GPU). NaN if a row is no
// distribution.
at::Tensor entropy(const at::Tensor& logits);

// Returns a router's features of each position: logits [N,V], on any device, in fp32 tensor operations.
model::RouterFeatures router_features(const at::Tensor& logits, int64_t k);

// Writes a router's features of one row on the CPU, float or double, to probabilities [k] and ids [k], without
// allocations. Returns the entropy.
template <class T>
double router_features(const T* logits, int64_t vocabulary, std::span<float> probabilities, std::span<int64_t> ids);

// Base of rules whose windows have at most the same number of tokens everywhere.
class BoundedWindow : public WindowRule {
 public:
  explicit BoundedWindow(int64_t most) : most_(most) {}
  int64_t maximum() const override { return most_; }
  int64_t length(int64_t /*row*/) const override { return most_; }

 private:
  int64_t most_;
};

// The window `fixed`: always G tokens (Leviathan et al., Algorithm 1; BiLD without fallback).
class FixedWindow : public BoundedWindow {
 public:
  using BoundedWindow::BoundedWindow;
  static WindowTraits kind() { return {.name = "fixed", .constant_length = true}; }
  WindowTraits traits() const override { return kind(); }
};

// The window `dynamic` of assisted generation, with the schedules of Transformers' `num_assistant_tokens_schedule`:
// `heuristic` and `heuristic_transient` (+2 after a full acceptance, else -1, at least 1) and `constant`. Either may
// also stop after a token of low probability.
//
// `heuristic` keeps its window across texts, as Transformers does across calls of generate(): each row of a batch
// begins with the mean of the windows that the rows of the batch before ended with, rounded down. `heuristic_transient`
// begins every text anew.

enum class WindowSchedule { kHeuristic, kHeuristicTransient, kConstant };

// Returns their names in options.
const NamedValues<WindowSchedule>& window_schedules();

struct DynamicWindowOptions {
  int64_t initial = 5;
  WindowSchedule schedule = WindowSchedule::kHeuristic;
  double confidence = 0;  // stops after a token of smaller probability; 0: off
};

class DynamicWindow : public WindowRule {
 public:
  explicit DynamicWindow(DynamicWindowOptions options) : options_(options) {}
  static WindowTraits kind(const DynamicWindowOptions& options);
  WindowTraits traits() const override { return kind(options_); }
  int64_t maximum() const override { return options_.schedule == WindowSchedule::kConstant ? options_.initial : 0; }
  void begin(std::span<const Row> rows) override;
  int64_t length(int64_t row) const override { return windows_[place(row)]; }
  at::Tensor go_on(const DraftStep& step) override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;
  std::optional<int64_t> carried() const override;
  void carry(std::optional<int64_t> window) override;

 private:
  size_t place(int64_t row) const { return places_[static_cast<size_t>(row)]; }

  DynamicWindowOptions options_;
  std::vector<int64_t> windows_;  // one for each row that the batch began with; between batches those they ended with
  std::vector<size_t> places_;    // [B] each row's index in windows_
};

// Returns bool [B]: answer(value) of each of the values [B], fp32 or fp64 on the CPU.
template <class Answer>
at::Tensor row_answers(const at::Tensor& values, const Answer& answer) {
  at::Tensor answers = host_empty(values.sizes(), at::kBool);
  auto* out = answers.mutable_data_ptr<bool>();
  const bool wide = values.scalar_type() == at::kDouble;
  for (int64_t b = 0; b < values.numel(); ++b) {
    out[b] = wide ? answer(values.const_data_ptr<double>()[b]) : answer(values.const_data_ptr<float>()[b]);
  }
  return answers;
}

// The window `fallback` of BiLD (Kim et al., §3.3): the drafter goes on while its largest probability is at least
// alpha_FB, for at most `max_draft` tokens in a row. It decides before the next token is taken. NaN lets the drafter go
// on, so that choosing the token finds it.
class FallbackWindow : public BoundedWindow {
 public:
  FallbackWindow(double threshold, int64_t max_draft) : BoundedWindow(max_draft), threshold_(threshold) {}
  static WindowTraits kind() { return {.name = "fallback", .decides = Decides::kBeforeToken}; }
  WindowTraits traits() const override { return kind(); }
  at::Tensor go_on(const DraftStep& step) override {
    // At thresholds of at most 0 or above 1 the answer must not depend on a rounding error.
    if (threshold_ <= 0 || threshold_ > 1) {
      return at::full({step.logits.size(0)}, threshold_ <= 0, step.logits.options().dtype(at::kBool));
    }
    const at::Tensor sure = confidence(step.logits);  // [B]
    if (!sure.is_cpu()) return sure.lt(threshold_).logical_not();
    return row_answers(sure, [this](auto value) { return !(value < static_cast<decltype(value)>(threshold_)); });
  }

 private:
  double threshold_;
};

// The window `entropy`: drafting ends after a token whose distribution has an entropy above a threshold. It is the
// untrained baseline of the window `router` and decides at the same point: the drafter has run for the token already,
// so leaving it out would waste the run.
class EntropyWindow : public BoundedWindow {
 public:
  // `most_entropy` in nats.
  EntropyWindow(double most_entropy, int64_t max_draft) : BoundedWindow(max_draft), most_entropy_(most_entropy) {}
  static WindowTraits kind() { return {.name = "entropy", .decides = Decides::kAfterToken}; }
  WindowTraits traits() const override { return kind(); }
  at::Tensor go_on(const DraftStep& step) override {
    const at::Tensor nats = entropy(step.logits);  // [B]
    if (!nats.is_cpu()) return nats.le(most_entropy_);
    return row_answers(nats, [this](double value) { return value <= most_entropy_; });
  }

 private:
  double most_entropy_;
};

// The window `oracle`, which stops exactly before the first rejection, and the recording pass that it replays. It is
// the upper bound of adaptive windows: no rule with the same max_draft makes fewer target runs.
//
// At temperature 0 an output is a function of its prompt. A first, untimed pass records the accepted length n_i of each
// window, which it has in the replay: both reach it with the same tokens. Rounding may break this where two logits are
// equal up to a step's error (methods.md §3); the output is the target's nevertheless, and after the record's end the
// target writes alone.

struct AcceptedLengths {
  using Key = std::vector<int64_t>;
  // Returns an output's identity: source, prompt and length limit.
  static Key key_of(const Row& row);

  std::map<Key, std::vector<int64_t>> lengths;  // of each output's windows
};

// A fixed window that records accepted lengths.
class RecordingWindow : public FixedWindow {
 public:
  // The record must outlive the rule.
  RecordingWindow(int64_t window, AcceptedLengths& record) : FixedWindow(window), record_(record) {}
  void begin(std::span<const Row> rows) override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  AcceptedLengths& record_;
  std::vector<AcceptedLengths::Key> keys_;      // [B]
  std::vector<std::vector<int64_t>> accepted_;  // [B]
};

class OracleWindow : public BoundedWindow {
 public:
  // The record must outlive the rule.
  OracleWindow(int64_t max_draft, const AcceptedLengths& record) : BoundedWindow(max_draft), record_(record) {}
  static WindowTraits kind() { return {.name = "oracle", .replays = true}; }
  WindowTraits traits() const override { return kind(); }
  // Throws std::logic_error for a row that was not recorded.
  void begin(std::span<const Row> rows) override;
  int64_t length(int64_t row) const override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  struct Replay {
    const std::vector<int64_t>* lengths = nullptr;
    size_t next = 0;
  };
  const AcceptedLengths& record_;
  std::vector<Replay> rows_;  // [B]
};

// The window `router` (Tandem Transformers, §3): after each drafted token a trained router predicts from the drafter's
// distribution whether the target will disagree. Drafting ends once the predicted acceptance 1 - P(disagreement) is
// below a threshold, or at `max_draft` tokens. The token just drafted stays, so sampling stays lossless.
class RouterWindow : public BoundedWindow {
 public:
  // The predictor must outlive the rule.
  RouterWindow(const model::RouterPredictor& router, double threshold, int64_t max_draft);
  static WindowTraits kind() { return {.name = "router", .decides = Decides::kAfterToken, .asks_router = true}; }
  WindowTraits traits() const override { return kind(); }
  at::Tensor go_on(const DraftStep& step) override;

 private:
  const model::RouterPredictor& router_;
  double threshold_;
  std::vector<float> probabilities_;  // [k] of one row
  std::vector<int64_t> ids_;          // [k] of one row
};

std::vector<std::string> window_rule_names();

// Returns the properties of the options' rule, which are known before anything is loaded. Errors: UserError for an
// unknown name.
WindowTraits window_traits(const DecodeOptions& options);

// Makes the options' rule. Errors: UserError for an unknown name, or if the rule asks a router or a record of accepted
// lengths and `models` has none.
std::unique_ptr<WindowRule> make_window_rule(const DecodeOptions& options, const GenerationModels& models);

// Returns the problem that the window rule asks a router and none was given.
Problem missing_router(const std::string& where);
// Returns the problem that a router is given for a drafter that is no model of its own.
Problem router_needs_model(const std::string& where, const std::string& drafter);

}  // namespace draftsmith::infer
