// Own GPU kernels: compiled without a GPU, or timed on one beside LibTorch's operators. tools/gpu runs it.
//
//   build/release/bench/bench_device_kernels --compile DIR --architecture sm_90
//   build/release/bench/bench_device_kernels --device cuda --dtype bf16 --json FILE
//
// --compile fills a folder that DRAFTSMITH_KERNEL_CACHE may name, and prints a line a source. Measures time recorded
// work, a JSON record each: linear layers of a few rows, attention over cached keys. Weights and keys change from one
// repetition to the next, so that no cache holds them.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/device_graph.h"
#include "base/error.h"
#include "base/kernel_loader.h"
#include "base/timing.h"
#include "base/util.h"
#include "bench/support/benches.h"
#include "bench/support/program.h"
#include "infer/loop/device_rows.h"
#include "infer/sampling/sampling.h"
#include "model/layers/linear_rows.h"
#include "model/layers/rms_norm.h"
#include "model/layers/step_operators.h"
#include "train/objectives/losses.h"

namespace {

using namespace draftsmith;

constexpr size_t kCachedBytes = size_t{256} << 20;  // more than a GPU's cache

struct Flags {
  std::string compile;
  std::string architecture = "sm_90";
  std::string dtype = "bf16";
  bool tiny = false;
  int64_t rounds = 5;
};

std::vector<KernelSource> all_sources() {
  std::vector<KernelSource> all{
      kernel_source(base_kernel_texts(), "base/kernels/dropout.cu", {"--fmad=false"}),  // as base/random_tensors.cpp
      model::rms_norm_source(),
      model::step_places_source(),
      infer::round_source(),
      infer::draws_source(),
      infer::most_likely_source(),
      train::cross_entropy_source()};
  for (const at::ScalarType type : model::kLinearRowsTypes) {
    for (const KernelSource& source : {model::step_source(type), model::linear_rows_source(type)}) {
      all.push_back(source);
      all.push_back(early_source(source));
    }
  }
  return all;
}

// Throws RunError if a source cannot be compiled or kept.
void compile(const Flags& flags) {
  KernelTools tools(CudaRuntime{}, "", flags.compile);
  for (const KernelSource& source : all_sources()) {
    const Stopwatch watch;
    const std::string cubin = cubin_of(source, flags.architecture, tools);
    fmt::print("{} {}: {} bytes, {:.1f} s\n", source.main.name, fmt::join(source.options, " "), cubin.size(),
               watch.seconds());
    std::fflush(stdout);
    if (!tools.cache.find(kernel_key(source, flags.architecture, tools.compiler.version()))) {
      throw RunError({flags.compile, "compiled kernels cannot be kept", "", "", "name a folder that can be written"});
    }
  }
}

class KernelMeasures {
 public:
  KernelMeasures(const Flags& flags, at::Device device, bench::Records& records)
      : flags_(flags),
        records_(records),
        device_(device),
        options_(at::TensorOptions(device).dtype(parse_dtype(flags.dtype))),
        numbers_(device) {
    records.keep("dtype", flags.dtype);
  }

  void linear_rows() const {
    if (flags_.tiny) {
      linear_rows({.outputs = 64, .inputs = 64});
      return linear_rows({.outputs = 128, .inputs = 64, .gated = true});
    }
    for (const Layer& layer : {Layer{1024, 1024}, Layer{1024, 4096}, Layer{4096, 1024}, Layer{3072, 1024},
                               Layer{32128, 1024}, Layer{2048, 2048}, Layer{8192, 2048, true}, Layer{128256, 2048}}) {
      linear_rows(layer);
    }
  }

  void attention() const {
    for (const int64_t keys : flags_.tiny ? std::vector<int64_t>{8, 32} : std::vector<int64_t>{32, 512, 4096}) {
      const int64_t heads = flags_.tiny ? 2 : 16;
      constexpr int64_t kWidth = 64;
      const std::vector<at::Tensor> keys_and_values = copies("keys", {2, 1, heads, keys, kWidth});
      const auto longs = at::TensorOptions(device_).dtype(at::kLong);
      const model::VisibleSlots slots{at::zeros({1}, longs), at::full({1, 1}, keys, longs), at::Tensor(),
                                      at::full({1, 1}, keys - 1, longs)};
      const at::Tensor query = normal("query", {1, 1, heads * kWidth});
      const auto count = std::max<int64_t>(20, std::ssize(keys_and_values));
      const double us = us_each(count, [&](int64_t i) {
        const at::Tensor& both = keys_and_values[static_cast<size_t>(i) % keys_and_values.size()];
        model::attend({query, both[0], both[1], at::Tensor(), 1.0 / 8}, slots, keys);
      });
      records_.add("attention", {{"keys", keys},
                                 {"heads", heads},
                                 {"head_width", kWidth},
                                 {"us", us},
                                 {"gb_per_second", 1e-3 * static_cast<double>(keys_and_values[0].nbytes()) / us}});
    }
  }

 private:
  struct Layer {
    int64_t outputs = 0;
    int64_t inputs = 0;
    bool gated = false;
  };

  at::Tensor normal(const std::string& name, at::IntArrayRef shape) const {
    return numbers_.normal(name, shape, 1 / std::sqrt(static_cast<double>(shape.back())),
                           c10::typeMetaToScalarType(options_.dtype()));
  }

  // Returns as many tensors as no cache holds.
  std::vector<at::Tensor> copies(const std::string& name, at::IntArrayRef shape) const {
    std::vector<at::Tensor> all{normal(name, shape)};
    const size_t wanted = flags_.tiny ? 2 : std::min<size_t>(128, kCachedBytes / all[0].nbytes() + 1);
    while (all.size() < wanted) all.push_back(normal(name + std::to_string(all.size()), shape));
    return all;
  }

  void linear_rows(const Layer& layer) const {
    constexpr double kEpsilon = 1e-6;
    const std::vector<at::Tensor> weights = copies("weight", {layer.gated ? 2 : 1, layer.outputs, layer.inputs});
    const at::Tensor norm = at::ones({layer.inputs}, options_);
    const auto count = std::max<int64_t>(20, std::ssize(weights));
    const auto weight = [&](int64_t i, int64_t part) { return weights[static_cast<size_t>(i) % weights.size()][part]; };
    const auto of = [&](int64_t i, int64_t part) { return model::LinearWeights{.weight = weight(i, part)}; };
    for (const int64_t rows : {1, 5, 16, 32}) {
      const at::Tensor x = normal("x", {rows, layer.inputs});
      const double own = us_each(count, [&](int64_t i) {
        if (layer.gated) {
          model::linear_rows(x, {norm, kEpsilon}, of(i, 0), model::PostOp::kSilu, {}, of(i, 1));
        } else {
          model::linear_rows(x, {norm, kEpsilon}, of(i, 0), model::PostOp::kNone);
        }
      });
      const double theirs = us_each(count, [&](int64_t i) {
        const at::Tensor in = at::rms_norm(x, {layer.inputs}, norm, kEpsilon);
        const at::Tensor y = at::linear(in, weight(i, 0));
        if (layer.gated) at::silu(y).mul_(at::linear(in, weight(i, 1)));
      });
      const auto bytes = static_cast<double>(weights[0].nbytes());
      records_.add("linear_rows", {{"outputs", layer.outputs},
                                   {"inputs", layer.inputs},
                                   {"gated", layer.gated},
                                   {"rows", rows},
                                   {"us", own},
                                   {"us_libtorch", theirs},
                                   {"gb_per_second", 1e-3 * bytes / own},
                                   {"gb_per_second_libtorch", 1e-3 * bytes / theirs}});
    }
  }

  // Returns the microseconds of each of `count` pieces of work that are recorded together.
  double us_each(int64_t count, const std::function<void(int64_t)>& work) const {
    const int64_t replays = flags_.tiny ? 1 : 10;
    WorkMemory memory;
    RepeatedWork repeated;
    std::vector<double> seconds;
    for (int64_t round = -3; round < flags_.rounds; ++round) {
      synchronize(device_);
      const Stopwatch watch;
      for (int64_t replay = 0; replay < replays; ++replay) {
        repeated.run(device_, memory, [&] {
          for (int64_t i = 0; i < count; ++i) work(i);
        });
      }
      synchronize(device_);
      if (round >= 0) seconds.push_back(watch.seconds());
    }
    return 1e6 * median(seconds) / static_cast<double>(replays * count);
  }

  const Flags& flags_;
  bench::Records& records_;
  at::Device device_;
  at::TensorOptions options_;
  bench::RandomNumbers numbers_;
};

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  bench::Program program("Own GPU kernels, compiled or timed");
  program.app.add_option("--compile", flags.compile, "compile all kernels into this folder, and measure nothing");
  program.app.add_option("--architecture", flags.architecture, "of --compile");
  program.app.add_option("--dtype", flags.dtype, "fp32, bf16 or fp16");
  program.app.add_flag("--tiny", flags.tiny, "sizes for a run without a GPU");
  program.app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber);
  return program.run(argc, argv, [&](at::Device device, bench::Records& records) {
    if (!flags.compile.empty()) {
      compile(flags);
      return true;
    }
    const at::NoGradGuard no_gradients;
    const KernelMeasures measures(flags, device, records);
    measures.linear_rows();
    measures.attention();
    return true;
  });
}
