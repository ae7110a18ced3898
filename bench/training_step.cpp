// Training speed of the T5-small shape with random weights on the CPU, for bench/compare_training and for profiles.
//
//   bench_training_step [--steps 3] [--rows 8] [--source 64] [--target 64] [--batches 1] [--dropout 0.1]
//   [--warmup 0] [--dtype fp32|bf16] [--threads 2] [--save-start DIR]
//
// Prints JSON: target tokens per second over the timed steps, the losses of all steps, and the memory of the process
// before there was a model and at its most. One warm-up step is left out of the times.
//
// With --save-start it trains nothing, and writes what a peer needs to make the same steps: DIR/model, a Hugging Face
// directory of the weights, and DIR/examples.json, the ids of all batches' examples.
#include <filesystem>
#include <iostream>
#include <span>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "base/device.h"
#include "base/files.h"
#include "base/timing.h"
#include "bench/support/shapes.h"
#include "bench/support/training_run.h"
#include "model/files/checkpoint.h"
#include "train/memory.h"

namespace {

using namespace draftsmith;

struct Settings {
  int64_t steps = 3;
  bench::TrainingRunOptions run{.size = {}, .dropout = 0.1};
  int64_t threads = 2;
  std::string save_start;  // a directory; empty: train
};

// Returns the most memory that the process has had.
double peak_memory_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void save_start(const std::filesystem::path& directory, const model::TransformerModel& model,
                const data::Corpus& corpus) {
  model::save_model(directory / "model", model);
  const auto copy = [](std::span<const int32_t> ids) { return std::vector<int32_t>(ids.begin(), ids.end()); };
  std::vector<std::vector<int32_t>> sources;
  std::vector<std::vector<int32_t>> targets;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    sources.push_back(copy(corpus.source(i)));
    targets.push_back(copy(corpus.target(i)));
  }
  write_file_atomic(directory / "examples.json",
                    nlohmann::json{{"sources", sources}, {"targets", targets}}.dump() + "\n");
}

nlohmann::json measure(const Settings& settings) {
  const double before = peak_memory_mb();
  model::TransformerModel model(bench::shape_config("t5-small"), 1);
  model.requires_grad(true);
  bench::TrainingRun run(model, settings.run);
  if (!settings.save_start.empty()) {
    save_start(settings.save_start, model, run.corpus());
    return {{"saved", settings.save_start}};
  }
  std::vector<double> losses = {run.step()};
  const Stopwatch watch;
  for (int64_t i = 0; i < settings.steps; ++i) losses.push_back(run.step());
  const double seconds = watch.seconds();
  const auto tokens = static_cast<double>(settings.steps * settings.run.size.rows * settings.run.size.target);
  return {{"tokens_per_second", tokens / seconds},
          {"seconds_per_step", seconds / static_cast<double>(settings.steps)},
          {"losses", losses},
          {"memory_before_mb", before},
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
  app.add_option("--batches", settings.run.batches, "different batches, which steps take in turns")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", settings.run.dropout);
  app.add_option("--warmup", settings.run.warmup, "steps in which the learning rate grows; 0: none");
  std::string dtype = "fp32";
  app.add_option("--dtype", dtype, "bf16: matrix products in bf16 over fp32 weights")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--threads", settings.threads);
  app.add_option("--save-start", settings.save_start, "write the weights and batches into this directory, and end");
  CLI11_PARSE(app, argc, argv);
  settings.run.autocast = dtype == "bf16";
  train::keep_freed_memory();
  set_threads(settings.threads);
  std::cout << measure(settings).dump() << "\n";
}
