// Training speed of the T5-small shape with random weights on the CPU, for bench/compare_training and for profiles.
//
//   bench_training_step [--steps 3] [--rows 8] [--source 64] [--target 64] [--dropout 0.1] [--threads 2]
//   [--activation-checkpointing] [--default-malloc]
//
// Prints JSON: target tokens per second over the timed steps, the last loss, and the most memory that the process had.
// One warm-up step is left out of the times.
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "base/device.h"
#include "base/timing.h"
#include "bench/support/shapes.h"
#include "bench/support/training_run.h"
#include "train/memory.h"

namespace {

using namespace draftsmith;

struct Settings {
  int64_t steps = 3;
  bench::TrainingRunOptions run{.size = {}, .dropout = 0.1};
  int64_t threads = 2;
  bool default_malloc = false;
};

// Returns the most memory that the process has had.
double peak_memory_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

nlohmann::json measure(const Settings& settings) {
  model::TransformerModel model(bench::shape_config("t5-small"), 1);
  model.requires_grad(true);
  bench::TrainingRun run(model, settings.run);
  run.step();
  double loss = 0;
  const Stopwatch watch;
  for (int64_t i = 0; i < settings.steps; ++i) loss = run.step();
  const double seconds = watch.seconds();
  const auto tokens = static_cast<double>(settings.steps * settings.run.size.rows * settings.run.size.target);
  return {{"tokens_per_second", tokens / seconds},
          {"seconds_per_step", seconds / static_cast<double>(settings.steps)},
          {"loss", loss},
          {"peak_memory_mb", peak_memory_mb()}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Training speed of the T5-small shape");
  app.add_option("--steps", settings.steps);
  app.add_option("--rows", settings.run.size.rows);
  app.add_option("--source", settings.run.size.source);
  app.add_option("--target", settings.run.size.target);
  app.add_option("--dropout", settings.run.dropout);
  app.add_option("--threads", settings.threads);
  app.add_flag("--activation-checkpointing", settings.run.recompute);
  app.add_flag("--default-malloc", settings.default_malloc, "leave the C library's memory settings alone");
  CLI11_PARSE(app, argc, argv);
  if (!settings.default_malloc) train::keep_freed_memory();
  set_threads(settings.threads);
  std::cout << measure(settings).dump() << "\n";
}
