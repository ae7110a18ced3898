// Measures what several processes add to a training step: the sum of a T5's gradients, in fp32 and in bf16, and the
// broadcast of updated parameters by their owners, as with training.shard_optimizer. Started by torchrun, srun or
// mpirun; process 0 prints a row of a table:
//
//   torchrun --nproc-per-node=2 --no-python build/release/bench/bench_gradient_sums 60   # 1, 10 or 60 M parameters
#include <algorithm>
#include <cstdlib>
#include <map>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/timing.h"
#include "distributed/job_world.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/models.h"
#include "train/optimizers/sharded_optimizer.h"

namespace {

using namespace draftsmith;

constexpr int kRounds = 7;

// T5s of about as many million parameters.
const std::map<int, model::ModelSizes> kSizes{
    {1,
     {.vocabulary = 1000,
      .width = 128,
      .heads = 4,
      .head_width = 32,
      .ff_width = 512,
      .encoder_layers = 2,
      .decoder_layers = 2}},
    {10,
     {.vocabulary = 8000,
      .width = 256,
      .heads = 4,
      .head_width = 64,
      .ff_width = 1024,
      .encoder_layers = 4,
      .decoder_layers = 4}},
    {60,
     {.vocabulary = 32128,
      .width = 512,
      .heads = 8,
      .head_width = 64,
      .ff_width = 2048,
      .encoder_layers = 6,
      .decoder_layers = 6}},
};

// Returns the median of the milliseconds that `work` takes, all processes beginning together; the first round does not
// count.
template <class Work>
double milliseconds(World& world, const Work& work) {
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    const at::Tensor meeting = at::zeros({1});
    world.sum({meeting});
    const Stopwatch watch;
    work();
    if (round > 0) times.push_back(1e3 * watch.seconds());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// Returns a row: parameters, processes, then ms and Gbit/s of what a process sends for each kind of travel.
std::string measure(World& world, const model::ModelSizes& sizes) {
  model::TransformerConfig config = model::t5_config(sizes);
  config.tied_head = true;
  const model::TransformerModel model(config, 1);
  std::vector<train::OptimizedParameter> parameters;
  std::vector<at::Tensor> gradients;
  int64_t numbers = 0;
  for (const auto& [name, value] : model.parameters()) {
    parameters.push_back({.name = name, .value = value.detach()});
    gradients.push_back(at::zeros_like(value));
    numbers += value.numel();
  }
  std::vector<std::vector<at::Tensor>> by_owner(static_cast<size_t>(world.size()));
  const auto owners = train::deal_parameters(parameters, world.size());
  for (size_t i = 0; i < owners.size(); ++i) by_owner[static_cast<size_t>(owners[i])].push_back(parameters[i].value);

  const double others = static_cast<double>(world.size() - 1) / static_cast<double>(world.size());
  const auto cell = [&](double time, double bytes_a_number) {
    return fmt::format("{:.1f}, {:.1f}", time, static_cast<double>(numbers) * bytes_a_number * others * 8 / time / 1e6);
  };
  return fmt::format("| {:.1f} M | {} | {} | {} | {} |", static_cast<double>(numbers) / 1e6, world.size(),
                     cell(milliseconds(world, [&] { world.sum(gradients); }), 8),
                     cell(milliseconds(world, [&] { world.sum(gradients, at::kBFloat16); }), 4),
                     cell(milliseconds(world, [&] { world.broadcast_each(by_owner); }), 4));
}

}  // namespace

int main(int count, char** arguments) {
  const auto sizes = count == 2 ? kSizes.find(std::atoi(arguments[1])) : kSizes.end();
  const auto launch = find_launch(process_environment());
  if (sizes == kSizes.end() || !launch) {
    fmt::print(stderr, "usage: torchrun --nproc-per-node=N --no-python {} 1|10|60\n", arguments[0]);
    return 2;
  }
  try {
    at::set_num_threads(1);
    const auto world = join_world(*launch, {.timeout = std::chrono::seconds(120)});
    const std::string row = measure(*world, sizes->second);
    if (world->leads()) fmt::print("{}\n", row);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
