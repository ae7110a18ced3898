// Training speed on a device, random weights made there: target tokens/s, share of the peak FLOP/s, peak memory, with
// and without dropout, in fp32 and with matrix products in bf16. tools/gpu runs it.
//
//   build/release/bench/bench_device_training --device cuda --shapes t5-small,t5-large --rows 64 --source 128
//     --target 128 --dropouts 0,0.1 --precisions fp32,bf16 --peak-tflops 989 --json FILE
//
// --activation-checkpointing recomputes layers in the backward pass. --matrix N adds the rate of a large matrix
// product. Prints a JSON record a line, medians of --rounds steps after two that warm up; --json FILE is complete after
// each record. A setting that fails (too little memory) is a record with `problem`, and the rest goes on.
#include <iostream>

#include <CLI/CLI.hpp>
#include <c10/core/CachingDeviceAllocator.h>

#include "base/error.h"
#include "base/timing.h"
#include "base/util.h"
#include "bench/support/bench_device.h"
#include "bench/support/random_model.h"
#include "bench/support/records.h"
#include "bench/support/shapes.h"
#include "bench/support/training_run.h"
#include "train/memory.h"

namespace {

using namespace draftsmith;
using Json = nlohmann::ordered_json;

struct Flags {
  std::string device = "auto";
  std::string shapes = "t5-small";
  std::string precisions = "fp32,bf16";
  std::vector<double> dropouts = {0, 0.1};
  bool recompute = false;
  bench::TrainingSize size{.rows = 64, .source = 128, .target = 128};
  int64_t rounds = 5;
  double peak_tflops = 0;
  int64_t matrix = 0;
  int64_t threads = 0;
  std::string json;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--device", flags.device, "auto, cpu, cuda, cuda:N or standin");
  app.add_option("--shapes", flags.shapes, "t5-small,t5-large,...");
  app.add_option("--precisions", flags.precisions, "fp32, or bf16 for matrix products in it, or both");
  app.add_option("--dropouts", flags.dropouts)->delimiter(',');
  app.add_flag("--activation-checkpointing", flags.recompute, "layers are computed again in the backward pass");
  app.add_option("--rows", flags.size.rows)->check(CLI::PositiveNumber);
  app.add_option("--source", flags.size.source)->check(CLI::PositiveNumber);
  app.add_option("--target", flags.size.target)->check(CLI::PositiveNumber);
  app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber);
  app.add_option("--peak-tflops", flags.peak_tflops, "the device's dense bf16 peak, for MFU; 0: unknown");
  app.add_option("--matrix", flags.matrix, "also measure a bf16 product of two N x N matrices; 0: not");
  app.add_option("--threads", flags.threads, "CPU threads; 0: LibTorch's choice");
  app.add_option("--json", flags.json, "also write the records here");
}

// Bytes that tensors took at most since the last call; null where the allocator does not count.
Json peak_memory_mb(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  auto* allocator = c10::getDeviceAllocator(device.type());
  constexpr size_t kAll = 0;  // of all pools
  const int64_t peak = allocator->getDeviceStats(device.index()).allocated_bytes.at(kAll).peak;
  allocator->resetPeakStats(device.index());
  return static_cast<double>(peak) / 1e6;
}

// The rate of a large bf16 matrix product: what the device reaches, beside what its data sheet says.
void measure_matrix(const Flags& flags, at::Device device, bench::Records& records) {
  const bench::RandomNumbers numbers(device);
  const at::Tensor a = numbers.normal("a", {flags.matrix, flags.matrix}, 1, at::kBFloat16);
  const at::Tensor b = numbers.normal("b", {flags.matrix, flags.matrix}, 1, at::kBFloat16);
  std::vector<double> seconds;
  for (int64_t round = -3; round < 2 * flags.rounds; ++round) {
    synchronize(device);
    const Stopwatch watch;
    a.mm(b);
    synchronize(device);
    if (round >= 0) seconds.push_back(watch.seconds());
  }
  const auto size = static_cast<double>(flags.matrix);
  records.add("matrix",
              {{"dtype", "bf16"}, {"size", flags.matrix}, {"tflops", 2e-12 * size * size * size / median(seconds)}});
}

struct Setting {
  std::string shape;
  std::string precision;
  double dropout = 0;
};

void measure(const Flags& flags, const Setting& setting, at::Device device, bench::Records& records) {
  const model::TransformerConfig config = bench::shape_config(setting.shape);
  const auto model = bench::random_trainee(config, device);
  bench::TrainingRun run(*model, {flags.size, setting.dropout, setting.precision == "bf16", flags.recompute});
  peak_memory_mb(device);
  for (int i = 0; i < 2; ++i) run.timed_step();
  std::vector<double> seconds;
  for (int64_t i = 0; i < flags.rounds; ++i) seconds.push_back(run.timed_step());
  const double step = median(seconds);
  const double flops = bench::training_flops(config, flags.size.rows, flags.size.source, flags.size.target) / step;
  const bool has_peak = flags.peak_tflops > 0 && setting.precision == "bf16";
  records.add("training", {{"shape", setting.shape},
                           {"precision", setting.precision},
                           {"dropout", setting.dropout},
                           {"activation_checkpointing", flags.recompute},
                           {"rows", flags.size.rows},
                           {"source", flags.size.source},
                           {"target", flags.size.target},
                           {"ms_per_step", 1e3 * step},
                           {"tokens_per_second", static_cast<double>(flags.size.rows * flags.size.target) / step},
                           {"tflops", flops / 1e12},
                           {"mfu", has_peak ? Json(flops / 1e12 / flags.peak_tflops) : Json(nullptr)},
                           {"peak_memory_mb", peak_memory_mb(device)}});
}

// Does one setting; an error becomes a record.
void guarded(const Flags& flags, const Setting& setting, at::Device device, bench::Records& records) {
  try {
    measure(flags, setting, device, records);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    records.add("problem", {{"shape", setting.shape},
                            {"precision", setting.precision},
                            {"dropout", setting.dropout},
                            {"problem", text.substr(0, text.find('\n'))}});
  }
}

void measure_all(const Flags& flags) {
  const at::Device device = bench::prepare_device(flags.device, flags.threads);
  std::vector<Setting> settings;
  for (const std::string& shape : bench::split_list(flags.shapes)) {
    bench::shape_config(shape);
    for (const std::string& precision : bench::split_list(flags.precisions)) {
      if (precision != "fp32" && precision != "bf16") {
        throw UserError({"--precisions", "unknown precision", "fp32 or bf16", "'" + precision + "'", ""});
      }
      for (const double dropout : flags.dropouts) settings.push_back({shape, precision, dropout});
    }
  }
  bench::Records records(flags.json, {{"device", bench::device_label(device)}});
  if (flags.matrix > 0) measure_matrix(flags, device, records);
  for (const Setting& setting : settings) guarded(flags, setting, device, records);
}

}  // namespace

int main(int argc, char** argv) {
  train::keep_freed_memory();
  Flags flags;
  CLI::App app("Training speed on a device, random weights");
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    measure_all(flags);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
