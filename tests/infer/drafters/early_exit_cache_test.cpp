// Drafting over the target's own state: no layer runs twice for a token, and every cache equals one that is computed
// from scratch, in every draft and after every round.
#include <gtest/gtest.h>

#include "infer/drafters/early_exit_drafter.h"
#include "infer/parts.h"
#include "tests/support/batches.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/tensors.h"

namespace draftsmith::infer::testing {
namespace {

using Ids = std::vector<int64_t>;

// Layers that have to run are counted beside those that do, and the state is compared with scratch ones.
class CheckedExit : public EarlyExitDrafter {
 public:
  CheckedExit(model::TransformerModel& target, int64_t layers)
      : EarlyExitDrafter(target, layers, nullptr), target_(target), layers_(layers) {}

  void encode(const DraftBegin& begin) override {
    if (target_.info().encoder_decoder) encoder_ = *begin.target_encoder;
    samples_ = begin.samples;
    for (const Row& row : begin.rows) order_.push_back(row.output);
  }

  void prefill(const DraftBegin& begin) override {
    EarlyExitDrafter::prefill(begin);
    state_ = dynamic_cast<model::DecoderState*>(begin.target_state);
    expected_runs_ = prompt_runs = state_->layer_runs();
  }

  at::Tensor next_logits(const DraftRequest& request) override {
    at::Tensor logits = EarlyExitDrafter::next_logits(request);
    ran_.resize(request.active.size(), 0);
    for (size_t b = 0; b < request.rows.size(); ++b) {
      ran_[b] += request.active[b];
      expected_runs_ += layers_ * request.active[b];
      units += layers_ * request.active[b];
      if (request.active[b] == 0) continue;
      Ids tokens = request.rows[b].tokens;
      for (const at::Tensor& step : request.drafted) tokens.push_back(step[static_cast<int64_t>(b)].item<int64_t>());
      const auto state = scratch(request.rows[b], tokens);
      compare(*state, static_cast<int64_t>(b), {0, layers_}, std::ssize(tokens));
      compare(*state, static_cast<int64_t>(b), {layers_, kExitLayers}, request.rows[b].length() - 1);
      ++drafts_checked;
    }
    EXPECT_EQ(state_->layer_runs(), expected_runs_);
    return logits;
  }

  model::StepOutput run_target(model::LanguageModel& target, const model::StepInput& input,
                               model::DecodeState& state) override {
    ran_.resize(input.new_tokens.size(), 0);
    for (size_t b = 0; b < ran_.size(); ++b) {
      const int64_t pending = input.new_tokens[b];
      if (pending == 0) continue;
      EXPECT_GE(ran_[b], pending - 1);
      expected_runs_ += (kExitLayers - layers_) * pending + layers_ * (pending - ran_[b]);
      units += kExitLayers - layers_ + layers_ * std::max<int64_t>(0, pending - ran_[b]);
      tokens_run += pending;
    }
    auto output = EarlyExitDrafter::run_target(target, input, state);
    EXPECT_EQ(state_->layer_runs(), expected_runs_);
    EXPECT_EQ(expected_runs_ - prompt_runs, kExitLayers * tokens_run);
    runs = expected_runs_ - prompt_runs;
    ran_.clear();
    return output;
  }

  void observe(const DraftObservation& observation) override {
    EarlyExitDrafter::observe(observation);
    for (size_t b = 0; b < observation.rows.size(); ++b) {
      const Row& row = observation.rows[b];
      if (row.finished) continue;
      compare(*scratch(row, {row.tokens.begin(), row.tokens.end() - 1}), static_cast<int64_t>(b), {0, kExitLayers},
              row.length() - 1);
      ++rounds_checked;
    }
  }

  int64_t prompt_runs = 0;
  int64_t runs = 0;
  int64_t tokens_run = 0;
  int64_t units = 0;  // layers one after the other, of all rows
  static int64_t drafts_checked;
  static int64_t rounds_checked;

 private:
  // A state of one row over these tokens.
  std::unique_ptr<model::DecodeState> scratch(const Row& row, const Ids& tokens) {
    const auto source = std::find(order_.begin(), order_.end(), row.output) - order_.begin();
    const int64_t first = source / samples_;
    const model::EncoderStates own{encoder_.hidden.defined() ? encoder_.hidden.narrow(0, first, 1) : at::Tensor(),
                                   encoder_.hidden.defined()
                                       ? std::vector<int64_t>{encoder_.lengths[static_cast<size_t>(first)]}
                                       : std::vector<int64_t>{}};
    auto state = target_.info().encoder_decoder ? target_.begin(own, 64) : target_.begin(1, 64);
    if (!tokens.empty()) target_.step(model::step_input({tokens}, model::Logits::kNone), *state);
    return state;
  }

  void compare(model::DecodeState& expected, int64_t row, model::LayerRange layers, int64_t length) const {
    auto& other = model::transformer_state(expected);
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      ASSERT_EQ(state_->layer_length(layer, row), length) << "layer " << layer;
      if (length == 0) continue;
      EXPECT_LT(difference(state_->keys(layer)[row].narrow(1, 0, length), other.keys(layer)[0].narrow(1, 0, length)),
                1e-9);
      EXPECT_LT(
          difference(state_->values(layer)[row].narrow(1, 0, length), other.values(layer)[0].narrow(1, 0, length)),
          1e-9);
    }
  }

  model::TransformerModel& target_;
  int64_t layers_;
  model::EncoderStates encoder_;
  int64_t samples_ = 1;
  std::vector<size_t> order_;  // results of the batch's rows as it began
  model::DecoderState* state_ = nullptr;
  std::vector<int64_t> ran_;
  int64_t expected_runs_ = 0;
};

int64_t CheckedExit::drafts_checked = 0;
int64_t CheckedExit::rounds_checked = 0;

// All sources are one batch, as the counts of one state are compared with those of all rows.
void check(model::TransformerModel& model, int64_t layer, DecodeOptions options) {
  options.batch_size = 8;
  options.verify_end = true;  // elsewhere the last tokens go through the first layers only
  auto drafter = std::make_unique<CheckedExit>(model, layer);
  CheckedExit& checked = *drafter;
  const auto results =
      Generator(exit_models(model), options, make_parts(options, std::move(drafter))).generate(exit_sources(model));
  const DecodeStats stats = total(results);
  EXPECT_EQ(stats.target_tokens, checked.tokens_run);
  EXPECT_EQ(stats.layer_runs, checked.runs);
  EXPECT_EQ(stats.latency_units, checked.units);
}

class EarlyExitCaches : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, EarlyExitCaches, ::testing::Values("t5", "llama", "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(EarlyExitCaches, NoLayerRunsTwiceForATokenAndCachesEqualRecomputation) {
  CheckedExit::drafts_checked = CheckedExit::rounds_checked = 0;
  const auto model = exit_model({.family = GetParam()});
  for (const int64_t layer : {int64_t{1}, int64_t{2}, kExitLayers}) {
    for (const char* window : {"fixed", "dynamic", "fallback", "entropy"}) {
      DecodeOptions options = exit_options("speculative");
      options.temperature = 0.7;
      options.num_samples = 2;
      options.max_new_tokens = 6;
      options.window = 3;
      options.window_rule = window;
      options.confidence = 0.3;
      check(*model, layer, options);
    }
    for (const char* rule : {"effective", "released_code"}) {
      DecodeOptions options = exit_options("bild");
      options.rollback = 1;
      options.fallback = 0.3;
      options.max_new_tokens = 7;
      options.rollback_rule = rule;
      check(*model, layer, options);
    }
  }
  EXPECT_GT(CheckedExit::drafts_checked, 500);
  EXPECT_GT(CheckedExit::rounds_checked, 200);
}

TEST(EarlyExit, LayersOfRowsThatEndInsideAKeptDraftAreCounted) {
  const auto model = exit_model({.family = "llama"});
  DecodeOptions options = exit_options("early-exit", 8);
  options.exit_layer = 1;
  options.acceptance = "accept_all";
  options.window_rule = "fixed";
  options.window = 4;
  options.max_new_tokens = 4;
  for (const auto& [ids, stats, log_probabilities, score, error] : run_exit(*model, 0, options)) {
    // The first token is the target's own; then at most three of layer 1.
    EXPECT_EQ(stats.layer_runs, kExitLayers * stats.target_tokens + stats.drafted - (stats.target_tokens - 1));
  }
}

TEST(EarlyExit, HiddenStatesFromTheExitOnAreServed) {
  const auto model = exit_model({.family = "llama"});
  const auto begin = [&] { return model->begin(2, 16); };
  const auto state = begin();
  const auto plain = begin();
  std::vector<Row> rows(2);
  rows[0].tokens = {5};
  rows[1].tokens = {7};
  EarlyExitDrafter drafter(*model, 2, nullptr);
  const model::TokenBatch none;
  drafter.prefill({none, 1, rows, 16, nullptr, state.get()});
  const std::vector<int64_t> active = {1, 0};
  drafter.next_logits({rows, {}, active, {}});
  model::StepInput input = model::step_input({{5, 9}, {7}});
  input.hidden_layers = {4, 2, 3};
  for (const model::Logits logits : {model::Logits::kAll, model::Logits::kLast}) {
    input.logits = logits;
    const auto expected = model->step(input, *plain);
    const auto output = drafter.run_target(*model, input, *state);
    ASSERT_EQ(output.hidden.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LT(difference(output.hidden[i][0], expected.hidden[i][0]), 1e-10);
      EXPECT_LT(difference(output.hidden[i][1][0], expected.hidden[i][1][0]), 1e-10);
    }
    EXPECT_LT(difference(output.logits[0], expected.logits[0]), 1e-10);
    EXPECT_LT(difference(output.logits[1][0], expected.logits[1][0]), 1e-10);
    for (model::DecodeState* one : {state.get(), plain.get()}) one->rollback(std::vector<int64_t>{0, 0});
    if (logits == model::Logits::kAll) drafter.next_logits({rows, {}, active, {}});
  }
  input.hidden_layers = {1};
  EXPECT_THROW(drafter.run_target(*model, input, *state), std::logic_error);
}

}  // namespace
}  // namespace draftsmith::infer::testing
