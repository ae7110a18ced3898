// Measures the time that the decoding loop adds to that of its models (encode, begin and step): first the loop alone,
// with models that take no time, then the added share at batch 1 with a target of T5-small's shape and a 2+2-layer
// drafter, both with random weights.
//
//   OMP_NUM_THREADS=2 build/release/bench/bench_loop_overhead [METHOD | --alone]
#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/environment.h"
#include "base/timing.h"
#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/models.h"

namespace {

using namespace draftsmith;

// Forwards every call and adds up its time.
class TimedModel : public model::LanguageModel {
 private:
  template <class Work>
  auto timed(Work work) {
    const Stopwatch watch;
    auto result = work();
    seconds_ += watch.seconds();
    return result;
  }

 public:
  TimedModel(model::LanguageModel& model, double& seconds) : model_(model), seconds_(seconds) {}
  const model::ModelInfo& info() const override { return model_.info(); }
  model::EncoderStates encode(const model::TokenBatch& source) override {
    return timed([&] { return model_.encode(source); });
  }
  std::unique_ptr<model::DecodeState> begin(const model::EncoderStates& source, int64_t capacity,
                                            int64_t samples) override {
    return timed([&] { return model_.begin(source, capacity, samples); });
  }
  std::unique_ptr<model::DecodeState> begin(int64_t rows, int64_t capacity) override {
    return timed([&] { return model_.begin(rows, capacity); });
  }
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    return timed([&] { return model_.step(input, state); });
  }

 private:
  model::LanguageModel& model_;
  double& seconds_;
};

// A model that takes no time and returns the same logits at every position.
class NullModel : public model::LanguageModel {
 public:
  explicit NullModel(const model::ModelInfo& info)
      : info_(info), logits_(at::randn({1, 64, info.vocabulary}).mul_(3)) {}

  const model::ModelInfo& info() const override { return info_; }
  model::EncoderStates encode(const model::TokenBatch& source) override { return {source.tokens, source.lengths}; }
  std::unique_ptr<model::DecodeState> begin(const model::EncoderStates&, int64_t capacity, int64_t) override {
    return std::make_unique<NullState>(capacity);
  }
  std::unique_ptr<model::DecodeState> begin(int64_t, int64_t capacity) override {
    return std::make_unique<NullState>(capacity);
  }
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override {
    dynamic_cast<NullState&>(state).tokens += input.new_tokens.front();
    return {logits_.narrow(1, 0, input.logits == model::Logits::kLast ? 1 : input.tokens.size(1)), {}};
  }

 private:
  struct NullState : model::DecodeState {
    explicit NullState(int64_t most) : room(most) {}
    int64_t rows() const override { return 1; }
    int64_t capacity() const override { return room; }
    int64_t length(int64_t) const override { return tokens; }
    void rollback(std::span<const int64_t> lengths) override { tokens = std::min(tokens, lengths.front()); }
    void select_rows(std::span<const int64_t>) override {}
    int64_t room;
    int64_t tokens = 0;
  };

  model::ModelInfo info_;
  at::Tensor logits_;
};

std::unique_ptr<model::TransformerModel> make_model(int64_t width, int64_t layers) {
  model::TransformerConfig config = model::t5_config({.vocabulary = 32128,
                                                      .width = width,
                                                      .heads = width / 64,
                                                      .head_width = 64,
                                                      .ff_width = 4 * width,
                                                      .encoder_layers = layers,
                                                      .decoder_layers = layers});
  config.tied_head = true;
  config.output_scale = 1 / std::sqrt(static_cast<double>(width));  // logits as spread as a trained T5's
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  made->requires_grad(false);
  made->pack();
  return made;
}

// Decodes four sources. Returns their statistics and seconds.
std::pair<infer::DecodeStats, double> decode(const std::string& method, double temperature,
                                             const infer::GenerationModels& models, double& inside) {
  infer::DecodeOptions options;
  options.method = method;
  if (temperature > 0 || method == "speculative") options.temperature = temperature;
  options.max_new_tokens = 64;
  infer::Generator generator(models, options);
  const std::vector<std::vector<int64_t>> sources(4, std::vector<int64_t>(32, 7));
  generator.generate(std::span(sources.data(), 1));
  inside = 0;
  const Stopwatch watch;
  const auto stats = infer::total(generator.generate(sources));
  return {stats, watch.seconds()};
}

void measure(const std::string& method, double temperature, model::LanguageModel& target,
             model::LanguageModel& drafter) {
  double inside = 0;
  TimedModel timed_target(target, inside);
  TimedModel timed_drafter(drafter, inside);
  infer::GenerationModels models;
  models.target = &timed_target;
  models.drafter = infer::as_drafter(timed_drafter);
  const auto [stats, all] = decode(method, temperature, models, inside);
  fmt::print("{:<12} T={:<4} {:4} tokens {:4} target runs {:5} draft runs  {:7.2f} ms in models, {:6.2f} % added\n",
             method, temperature, stats.emitted, stats.target_runs, stats.draft_runs, inside * 1e3,
             (all - inside) / inside * 100);
}

void measure_alone(const std::string& method, double temperature, model::LanguageModel& nothing) {
  double inside = 0;
  infer::GenerationModels models;
  models.target = &nothing;
  models.drafter = infer::as_drafter(nothing);
  const auto [stats, all] = decode(method, temperature, models, inside);
  fmt::print("{:<12} T={:<4} {:4} tokens {:4} target runs {:5} draft runs  {:7.1f} us a target run\n", method,
             temperature, stats.emitted, stats.target_runs, stats.draft_runs,
             all / static_cast<double>(stats.target_runs) * 1e6);
}

const std::pair<std::string, double> kRuns[] = {{"greedy", 0},   {"speculative", 0}, {"speculative", 1},
                                                {"assisted", 0}, {"bild", 0},        {"bild", 1}};

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  const std::string chosen = argc > 1 ? argv[1] : "";
  fmt::print("{} threads\nthe loop alone, models that take no time\n", at::get_num_threads());
  model::ModelInfo info;
  info.vocabulary = 32128;
  info.eos = {1};
  NullModel nothing(info);
  for (const auto& [method, temperature] : kRuns) measure_alone(method, temperature, nothing);
  if (chosen == "--alone") return 0;
  auto target = make_model(512, 6);
  auto drafter = make_model(256, 2);
  fmt::print("with models\n");
  for (const auto& [method, temperature] : kRuns) {
    if (chosen.empty() || method == chosen) measure(method, temperature, *target, *drafter);
  }
  return 0;
}
