// Predictive pipelined decoding beside greedy decoding of the same prompts: its executions in turns, batch 1, as ratios
// of decoding time with their spread; and what a token would cost on several devices. fastest_execution() rests on
// this.
//
//   build/release/bench/bench_ppd_execution [--threads N] [--device cpu|cuda] [--rounds N]
//
// Random weights, but later layers change the hidden state less than the first, so that early predictions are right
// now and then; fp32, vocabulary 32,128 (narrow: 4,000), 64 new tokens, d-bar = d/2.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include <fmt/format.h>

#include "base/allocator.h"
#include "base/device.h"
#include "base/device_choice.h"
#include "base/timing.h"
#include "evaluate/theory/ppd_simulation.h"
#include "infer/generator.h"

namespace {

using namespace draftsmith;

constexpr int64_t kTokens = 64;

struct Shape {
  std::string name;
  bool encoder_decoder = true;
  int64_t width = 512;
  int64_t layers = 6;
  int64_t vocabulary = 32128;
};

std::unique_ptr<model::TransformerModel> make_model(const Shape& shape, at::Device device) {
  model::TransformerConfig config;
  config.family = shape.encoder_decoder ? "t5" : "llama";
  config.encoder_decoder = shape.encoder_decoder;
  config.vocabulary = shape.vocabulary;
  config.width = shape.width;
  config.heads = shape.width / 64;
  config.head_width = 64;
  config.ff_width = 4 * shape.width;
  config.encoder_layers = shape.encoder_decoder ? shape.layers : 0;
  config.decoder_layers = shape.layers;
  config.tied_head = false;
  config.eos = {};
  if (!shape.encoder_decoder) {
    config.positions = model::Positions::kRotary;
    config.rotary.width = 64;
    config.attention_scale = 0.125;
    config.max_positions = 1024;
  }
  auto made = std::make_unique<model::TransformerModel>(config, 1);
  made->requires_grad(false);
  for (const auto& [name, value] : made->parameters()) {
    const bool later = name.starts_with("decoder.") && !name.starts_with("decoder.0.");
    if (later && (name.ends_with(".output.weight") || name.ends_with(".down.weight"))) value.mul_(0.3);
  }
  made->to(device, at::kFloat);
  made->pack();
  return made;
}

infer::DecodeOptions options_of(const std::string& execution, int64_t candidates) {
  infer::DecodeOptions options;
  options.method = execution == "greedy" ? "greedy" : "ppd";
  options.temperature = 0;
  options.max_new_tokens = kTokens;
  if (execution == "greedy") return options;
  options.execution = execution;
  options.candidates = candidates;
  return options;
}

// Decoding seconds of each round and the counts of one.
struct Measured {
  std::vector<double> seconds;
  infer::DecodeStats stats;
};

// Of the ratios of rounds, so that what slows a machine down for a while slows both.
void print_ratios(const std::string& name, const Measured& run, const Measured& greedy) {
  std::vector<double> ratios;
  for (size_t i = 0; i < run.seconds.size(); ++i) ratios.push_back(run.seconds[i] / greedy.seconds[i]);
  std::sort(ratios.begin(), ratios.end());
  fmt::print("  {:<8} {:.3f} of greedy's time ({:.3f} to {:.3f}), match rate {:.2f}, {} layers run\n", name,
             ratios[ratios.size() / 2], ratios.front(), ratios.back(), run.stats.match_rate(), run.stats.layer_runs);
}

void measure(const Shape& shape, int64_t candidates, at::Device device, int rounds) {
  const auto model = make_model(shape, device);
  infer::GenerationModels models;
  models.target = model.get();
  const std::vector<std::vector<int64_t>> sources{std::vector<int64_t>(32, 7)};
  std::map<std::string, Measured> runs;
  const std::vector<std::string> names{"greedy", "batched", device.is_cpu() ? "threads" : "streams"};
  for (int round = -1; round < rounds; ++round) {
    for (const std::string& name : names) {
      infer::Generator generator(models, options_of(name, candidates));
      const auto stats = infer::total(generator.generate(sources));
      if (round >= 0) runs[name].seconds.push_back(stats.seconds.decode());
      runs[name].stats = stats;
    }
  }
  fmt::print("{}, {} layers, width {}, k {}: greedy {:.3f} ms a token\n", shape.name, shape.layers, shape.width,
             candidates, *std::ranges::min_element(runs["greedy"].seconds) / static_cast<double>(kTokens) * 1e3);
  for (const std::string& name : names) {
    if (name != "greedy") print_ratios(name, runs[name], runs["greedy"]);
  }
  const int64_t early = (shape.layers + 1) / 2;
  const auto times = evaluate::measure_layer_times(*model, nullptr, {early, candidates}, {sources[0], {1, 7, 7, 7}});
  const double rate = runs["batched"].stats.match_rate();
  const auto simulation = evaluate::simulate_ppd(times, {shape.layers, early, candidates, rate}, kTokens);
  fmt::print(
      "  layer {:.1f} us, head {:.1f}, early head {:.1f}, embedding {:.1f}, branches {:.1f}, message {:.1f}, "
      "copy of {} bytes {:.1f}\n",
      times.layer * 1e6, times.head * 1e6, times.early_head * 1e6, times.embedding * 1e6,
      times.branches.at(candidates) * 1e6, times.message * 1e6, times.copy_bytes, times.copy * 1e6);
  for (int64_t devices = 1; devices <= candidates + 1; ++devices) {
    fmt::print("  {} devices: {:.3f} of greedy's time", devices, 1 / simulation.speedup(devices));
  }
  fmt::print("; theorem {:.3f}\n", 1 / simulation.theorem_speedup());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  at::Device device = at::kCPU;
  int rounds = 15;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) set_threads(std::stoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::stoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--device") == 0) device = choose_device(argv[i + 1]);
  }
  fmt::print("{}, {} threads\n", device_description(device), set_threads(0));
  for (const int64_t candidates : {1, 3}) {
    measure({.name = "T5-small's shape"}, candidates, device, rounds);
    measure({.name = "narrow T5", .width = 256, .vocabulary = 4000}, candidates, device, rounds);
    measure({.name = "Llama", .encoder_decoder = false, .layers = 12}, candidates, device, rounds);
  }
}
