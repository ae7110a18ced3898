// Training speed of the T5-small shape with random weights, for bench/compare_training and for profiles.
//
//   bench_training_step [--steps 3] [--rows 8] [--source 64] [--target 64] [--dropout 0.1] [--threads 2]
//   [--default-malloc]
//
// Prints JSON: target tokens per second over the timed steps, and the last loss. One warm-up step is left out.
#include "train/training_step.h"

#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/files.h"
#include "base/random.h"
#include "base/timing.h"
#include "tests/support/models.h"
#include "train/memory.h"
#include "train/optimizers/optimizer.h"

namespace {

using namespace draftsmith;

struct Settings {
  int64_t steps = 3;
  int64_t rows = 8;
  int64_t source = 64;
  int64_t target = 64;
  double dropout = 0.1;
  int64_t threads = 2;
  bool default_malloc = false;
};

model::TransformerConfig t5_small() {
  model::TransformerConfig config = model::t5_config({.vocabulary = 32128,
                                                      .width = 512,
                                                      .heads = 8,
                                                      .head_width = 64,
                                                      .ff_width = 2048,
                                                      .encoder_layers = 6,
                                                      .decoder_layers = 6});
  config.tied_head = true;
  config.output_scale = 1 / std::sqrt(512.0);
  return config;
}

void write_random_corpus(const std::filesystem::path& file, const Settings& settings) {
  data::CorpusInfo info;
  info.tokenizer_hash = "none";
  info.vocabulary = 32128;
  data::CorpusWriter writer(file, info);
  RandomSequence random{CounterRandom(1, "bench")};
  const auto row = [&](int64_t length) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < length; ++t) ids.push_back(static_cast<int32_t>(3 + random.below(32000)));
    return ids;
  };
  for (int64_t i = 0; i < settings.rows; ++i) writer.add(row(settings.source), row(settings.target));
  writer.finish();
}

nlohmann::json measure(const Settings& settings) {
  const TemporaryDirectory folder;
  write_random_corpus(folder / "corpus.h5", settings);
  const data::Corpus corpus(folder / "corpus.h5");
  model::TransformerModel model(t5_small(), 1);
  model.requires_grad(true);
  train::PlainTrainable trainable(model);
  const auto objective = train::make_objective({});
  const auto optimizer = train::make_optimizer(model.parameters(), {});
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < settings.rows; ++i) rows.push_back(i);
  double loss = 0;
  uint64_t step = 0;
  const auto one_step = [&] {
    const train::StepResult result = train::accumulate_gradients(
        trainable, *objective, corpus, {rows}, {.dropout = settings.dropout, .first_micro_step = step++});
    optimizer->step(1e-4, train::gradient_scale(result, 1.0));
    optimizer->zero_grad();
    loss = result.loss_sum / static_cast<double>(result.labels);
  };
  one_step();
  const Stopwatch watch;
  for (int64_t i = 0; i < settings.steps; ++i) one_step();
  const double seconds = watch.seconds();
  return {{"tokens_per_second", static_cast<double>(settings.steps * settings.rows * settings.target) / seconds},
          {"seconds_per_step", seconds / static_cast<double>(settings.steps)},
          {"loss", loss}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Training speed of the T5-small shape");
  app.add_option("--steps", settings.steps);
  app.add_option("--rows", settings.rows);
  app.add_option("--source", settings.source);
  app.add_option("--target", settings.target);
  app.add_option("--dropout", settings.dropout);
  app.add_option("--threads", settings.threads);
  app.add_flag("--default-malloc", settings.default_malloc, "leave the C library's memory settings alone");
  CLI11_PARSE(app, argc, argv);
  if (!settings.default_malloc) train::keep_freed_memory();
  set_threads(settings.threads);
  std::cout << measure(settings).dump() << "\n";
}
