// What the decode loop adds to the time of the models it runs: 1 - (time inside encode, begin and step) / total, at
// batch 1 with a target of T5-small's shape and a 2+2-layer drafter (random weights).
//
//   OMP_NUM_THREADS=2 build/release/bench/bench_loop_overhead
#include <chrono>
#include <cmath>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "infer/generator.h"
#include "model/transformer_model.h"

namespace {

using namespace draftsmith;
using Clock = std::chrono::steady_clock;

// Passes everything on and adds up the time it takes.
class TimedModel : public model::LanguageModel {
 private:
  template <class Work>
  auto timed(Work work) {
    const auto start = Clock::now();
    auto result = work();
    seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
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

std::unique_ptr<model::TransformerModel> make_model(int64_t width, int64_t layers) {
  model::TransformerConfig config;
  config.family = "t5";
  config.vocabulary = 32128;
  config.width = width;
  config.heads = width / 64;
  config.head_width = 64;
  config.ff_width = 4 * width;
  config.encoder_layers = layers;
  config.decoder_layers = layers;
  config.output_scale = 1 / std::sqrt(static_cast<double>(width));  // logits as spread as a trained T5's
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  made->requires_grad(false);
  made->pack();
  return made;
}

void measure(const std::string& method, double temperature, model::LanguageModel& target,
             model::LanguageModel& drafter) {
  double inside = 0;
  TimedModel timed_target(target, inside);
  TimedModel timed_drafter(drafter, inside);
  infer::GenerationModels models;
  models.target = &timed_target;
  models.drafter = &timed_drafter;
  infer::DecodeOptions options;
  options.method = method;
  if (temperature > 0) options.temperature = temperature;
  if (method == "speculative" && temperature == 0) options.temperature = 0;
  options.max_new_tokens = 64;
  infer::Generator generator(models, options);
  const std::vector<std::vector<int64_t>> sources(4, std::vector<int64_t>(32, 7));
  generator.generate(std::span(sources.data(), 1));
  inside = 0;
  const auto start = Clock::now();
  const auto stats = infer::total(generator.generate(sources));
  const double all = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("{:<12} T={:<4} {:4} tokens {:4} target runs {:5} draft runs  {:7.2f} ms in models, {:6.2f} % added\n",
             method, temperature, stats.emitted, stats.target_runs, stats.draft_runs, inside * 1e3,
             (all - inside) / inside * 100);
}

}  // namespace

int main() {
  auto target = make_model(512, 6);
  auto drafter = make_model(256, 2);
  fmt::print("{} threads\n", at::get_num_threads());
  measure("greedy", 0, *target, *drafter);
  measure("speculative", 0, *target, *drafter);
  measure("speculative", 1, *target, *drafter);
  measure("assisted", 0, *target, *drafter);
  measure("bild", 0, *target, *drafter);
  measure("bild", 1, *target, *drafter);
  return 0;
}
