// Training speed with random weights, for bench/compare_training, tools/gpu and profiles.
//
//   bench_training_step [--shape t5-small] [--device cpu] [--steps 3] [--rows 8] [--source 64] [--target 64]
//   [--batches 1] [--dropout 0.1] [--warmup 0] [--dtype fp32|bf16] [--peak-tflops N] [--save-start DIR]
//
// Prints a JSON record: target tokens per second over the timed steps, the losses of all steps, and the most memory of
// the process, or on a GPU of tensors. One warm-up step is left out of the times.
//
// With --save-start it trains nothing, and writes what a peer needs to make the same steps: DIR/model, a Hugging Face
// directory of the weights, and DIR/examples.json, the ids of all batches' examples.
#include "train/training_step.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "base/timing.h"
#include "bench/support/benches.h"
#include "bench/support/program.h"
#include "infer/costs/decode_work.h"
#include "model/files/checkpoint.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"

namespace draftsmith::bench {
namespace {

struct Settings {
  std::string shape = "t5-small";
  int64_t steps = 3;
  int64_t rows = 8;
  int64_t source = 64;  // tokens of a row
  int64_t target = 64;
  int64_t batches = 1;  // different batches, which steps take in turns
  double dropout = 0.1;
  std::string dtype = "fp32";  // of matrix products
  int64_t warmup = 0;          // steps in which the learning rate grows to its height; 0: none
  double peak_tflops = 0;      // 0: unknown
  std::string save_start;      // a directory; empty: train
};

void write_random_corpus(const std::filesystem::path& file, const model::TransformerConfig& config,
                         const Settings& settings) {
  data::CorpusInfo info{.tokenizer_hash = "none", .vocabulary = config.vocabulary};
  if (!config.encoder_decoder) info.provenance = {{"prompts", "true"}};
  data::CorpusWriter writer(file, info);
  RandomSequence random{CounterRandom(1, "bench")};
  const auto row = [&](int64_t length) {
    std::vector<int32_t> ids;
    const auto bound = static_cast<uint64_t>(config.vocabulary - 3);
    for (int64_t t = 0; t < length; ++t) ids.push_back(static_cast<int32_t>(3 + random.below(bound)));
    return ids;
  };
  for (int64_t i = 0; i < settings.rows * settings.batches; ++i) {
    writer.add(row(settings.source), row(settings.target));
  }
  writer.finish();
}

// Cross entropy, AdamW at a rate of 1e-4, clipping at 1, one micro-batch a step.
class TrainingRun {
 public:
  // All must outlive the run, and the model's parameters must take gradients.
  TrainingRun(model::TransformerModel& model, const data::Corpus& corpus, const Settings& settings)
      : settings_(settings),
        corpus_(corpus),
        trainable_(model),
        objective_(train::make_objective({})),
        optimizer_(train::make_optimizer(model.parameters(), {})) {}

  // Makes one step. Returns its mean loss. Throws RunError if it is not finite.
  double step() {
    std::vector<int64_t> rows(static_cast<size_t>(settings_.rows));
    std::iota(rows.begin(), rows.end(), static_cast<int64_t>(steps_) % settings_.batches * settings_.rows);
    const train::StepResult result = train::accumulate_gradients(
        trainable_, *objective_, corpus_, {rows},
        {.dropout = settings_.dropout, .first_micro_step = steps_++, .autocast = settings_.dtype == "bf16"});
    const double share =
        settings_.warmup == 0 ? 1 : std::min(1.0, static_cast<double>(steps_) / static_cast<double>(settings_.warmup));
    optimizer_->step(1e-4 * share, train::gradient_scale(result, 1.0));
    optimizer_->zero_grad();
    return result.loss_sum / static_cast<double>(result.labels);
  }

 private:
  const Settings& settings_;
  const data::Corpus& corpus_;
  train::PlainTrainable trainable_;
  std::unique_ptr<train::Objective> objective_;
  std::unique_ptr<train::Optimizer> optimizer_;
  uint64_t steps_ = 0;
};

// Returns the most memory that the process has had, on a GPU that of tensors.
double peak_memory_mb(at::Device device) {
  if (device.is_cuda()) {
    constexpr size_t kAll = 0;  // of all pools
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    return static_cast<double>(stats.allocated_bytes.at(kAll).peak) / 1e6;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Returns the floating-point operations of one training step: three times those of the forward pass's matrix products,
// attention scores included; a norm's few weights count like a matrix's. Decoder-only models read `source` + `target`
// tokens a row.
double training_flops(const model::TransformerConfig& config, int64_t rows, int64_t source, int64_t target) {
  const auto written = static_cast<double>(config.encoder_decoder ? target : source + target);
  const double weights = static_cast<double>(infer::step_weight_bytes(config, at::kFloat)) / sizeof(float);
  const auto layers = static_cast<double>(config.decoder_layers);
  double forward = 2 * written * weights + layers * infer::attention_operations(config, written, written);  // of a row
  if (config.encoder_decoder) {
    forward += infer::encoder_work(config, at::kFloat, source).operations;
    forward += infer::cross_attention_work(config, at::kFloat, source).operations;
    forward += layers * infer::attention_operations(config, written, static_cast<double>(source));
  }
  return 3 * static_cast<double>(rows) * forward;
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

void measure(const Settings& settings, at::Device device, Records& records) {
  const model::TransformerConfig config = shape_config(settings.shape);
  const auto model = random_trainee(config, device);
  const TemporaryDirectory folder;
  write_random_corpus(folder / "corpus.h5", config, settings);
  const data::Corpus corpus(folder / "corpus.h5");
  if (!settings.save_start.empty()) return save_start(settings.save_start, *model, corpus);
  TrainingRun run(*model, corpus, settings);
  std::vector<double> losses = {run.step()};
  synchronize(device);
  const Stopwatch watch;
  for (int64_t i = 0; i < settings.steps; ++i) losses.push_back(run.step());
  synchronize(device);
  const double seconds = watch.seconds() / static_cast<double>(settings.steps);
  const double tflops = training_flops(config, settings.rows, settings.source, settings.target) / seconds / 1e12;
  records.add("training", {{"shape", settings.shape},
                           {"precision", settings.dtype},
                           {"dropout", settings.dropout},
                           {"rows", settings.rows},
                           {"source", settings.source},
                           {"target", settings.target},
                           {"ms_per_step", 1e3 * seconds},
                           {"tokens_per_second", static_cast<double>(settings.rows * settings.target) / seconds},
                           {"tflops", tflops},
                           {"mfu", settings.peak_tflops > 0 ? nlohmann::ordered_json(tflops / settings.peak_tflops)
                                                            : nlohmann::ordered_json()},
                           {"losses", losses},
                           {"peak_memory_mb", peak_memory_mb(device)}});
}

}  // namespace
}  // namespace draftsmith::bench

int main(int argc, char** argv) {
  namespace bench = draftsmith::bench;
  bench::Settings settings;
  bench::Program program("Training speed, random weights");
  CLI::App& app = program.app;
  app.add_option("--shape", settings.shape);
  app.add_option("--steps", settings.steps)->check(CLI::PositiveNumber);
  app.add_option("--rows", settings.rows)->check(CLI::PositiveNumber);
  app.add_option("--source", settings.source)->check(CLI::PositiveNumber);
  app.add_option("--target", settings.target)->check(CLI::PositiveNumber);
  app.add_option("--batches", settings.batches, "different batches, which steps take in turns")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", settings.dropout);
  app.add_option("--warmup", settings.warmup, "steps in which the learning rate grows; 0: none");
  app.add_option("--dtype", settings.dtype, "bf16: matrix products in bf16 over fp32 weights")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--peak-tflops", settings.peak_tflops, "the device's dense bf16 peak, for MFU; 0: unknown");
  app.add_option("--save-start", settings.save_start, "write the weights and batches into this directory, and end");
  draftsmith::keep_freed_memory();
  return program.run(argc, argv, [&](at::Device device, bench::Records& records) {
    bench::measure(settings, device, records);
    return true;
  });
}
