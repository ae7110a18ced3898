#include "train/training_step.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bf16_product.h"
#include "base/device_tensors.h"
#include "base/error.h"
#include "base/signals.h"
#include "model/cpu/instructions.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

bool trains_in_bf16(const std::string& precision, at::Device device) {
  if (precision != "auto") return precision == "bf16";
  const auto needed = has_bf16_tiles() ? model::Instructions::kAmx : model::Instructions::kAvx512;
  return device.is_cpu() && has_bf16_product() && model::cpu_instructions() >= needed;
}

MicroBatches next_step(data::BatchOrder& order, data::BatchPosition& position, int64_t accumulate) {
  MicroBatches examples;
  do {
    examples.push_back(order.next(position));
  } while (std::ssize(examples) < accumulate && position.batch != 0);
  return examples;
}

namespace {

// Norm over all gradients together; a scalar tensor.
at::Tensor global_norm(const TrainableModel& trainable) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : trainable.parameters()) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return at::stack(at::_foreach_norm(gradients, 2)).norm();
}

[[noreturn]] void refuse(const std::string& what, int64_t step, const data::Corpus& corpus,
                         const std::vector<int64_t>& examples) {
  throw RunError({.where = corpus.file().string(),
                  .what = what + " in training step " + std::to_string(step),
                  .expected = "a finite number",
                  .found = fmt::format("NaN or infinity from the examples {}", fmt::join(examples, ", ")),
                  .hint = "look at them with `draftsmith inspect`; else lower the learning rate, warm up longer or "
                          "clip, in a stage `from` the last checkpoint's model (checkpoints/last/model), which is "
                          "unharmed"});
}

// Checks the micro-batches' losses and, last of the values, the norm.
void require_finite_step(const std::vector<double>& values, int64_t step, const data::Corpus& corpus,
                         const MicroBatches& micro_batches) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (!std::isfinite(values[i])) refuse("the loss is not finite", step, corpus, micro_batches[i]);
    all.insert(all.end(), micro_batches[i].begin(), micro_batches[i].end());
  }
  if (!std::isfinite(values.back())) refuse("a gradient is not finite", step, corpus, all);
}

// Makes the forward and backward pass of one micro-batch, the step's `number`th.
Loss add_gradients(TrainableModel& trainable, Objective& objective, const data::Corpus& corpus,
                   const std::vector<int64_t>& examples, const StepSettings& settings, size_t number) {
  const Batch batch = make_batch(corpus, examples, trainable.info(), settings.pack_tokens);
  const model::DropoutContext dropout{
      .probability = settings.dropout, .seed = settings.seed, .step = settings.first_micro_step + number};
  Loss loss;
  {
    const AutocastScope autocast(trainable.info().device.type(), settings.autocast);
    loss = objective.loss(trainable, batch, dropout);
  }
  loss.sum.backward();
  return loss;
}

// Replaces losses (scalars in fp64, one for each micro-batch; 0 where another's), counts and gradients by their sums
// over all processes. A parameter without a gradient on any of them stays without one; one with a gradient on some gets
// it on all.
void sum_gradients(ProcessGroup& world, const TrainableModel& trainable, std::vector<at::Tensor>& losses,
                   StepResult& result) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters;
  std::vector<double> own{static_cast<double>(result.labels), static_cast<double>(result.divisor),
                          result.stop ? 1.0 : 0.0};
  const size_t first_parameter = own.size();  // from here on, 1 for each parameter with a gradient
  for (const auto& [name, parameter] : trainable.parameters()) {
    if (!parameter.requires_grad()) continue;
    parameters.push_back(parameter);
    own.push_back(parameter.grad().defined() ? 1 : 0);
  }
  const at::Tensor all = at::cat({at::stack(losses), at::tensor(own, at::kDouble).to(losses.front().device())});
  world.sum({all});
  for (size_t i = 0; i < losses.size(); ++i) losses[i] = all[static_cast<int64_t>(i)];
  const at::Tensor on_host = all.narrow(0, std::ssize(losses), std::ssize(own)).cpu();
  const double* sums = on_host.const_data_ptr<double>();
  result.labels = static_cast<int64_t>(sums[0]);
  result.divisor = static_cast<int64_t>(sums[1]);
  result.stop = sums[2] > 0;
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (sums[first_parameter + i] == 0) continue;
    if (!parameters[i].grad().defined()) parameters[i].mutable_grad() = at::zeros_like(parameters[i]);
    gradients.push_back(parameters[i].grad());
  }
  world.sum(gradients);
}

}  // namespace

StepResult accumulate_gradients(TrainableModel& trainable, Objective& objective, const data::Corpus& corpus,
                                const MicroBatches& micro_batches, const StepSettings& settings) {
  ProcessGroup& world = *settings.world;
  StepResult result;
  std::vector<at::Tensor> values;  // the micro-batches' losses, then the norm
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (!world.has(static_cast<int64_t>(i))) {
      values.push_back(at::zeros({}, at::TensorOptions(trainable.info().device).dtype(at::kDouble)));
      continue;
    }
    const Loss loss = add_gradients(trainable, objective, corpus, micro_batches[i], settings, i);
    values.push_back(loss.sum.detach().to(at::kDouble));
    result.labels += loss.count;
    result.divisor += loss.divisor();
  }
  if (!world.is_alone()) {
    result.stop = stop_requested() != 0;
    sum_gradients(world, trainable, values, result);
  }
  values.push_back(global_norm(trainable).to(at::kDouble));
  // Loss and norm reach the host together, so that a GPU is waited for once.
  const at::Tensor on_host = at::stack(values).cpu();
  const std::vector<double> numbers(on_host.data_ptr<double>(), on_host.data_ptr<double>() + on_host.numel());
  require_finite_step(numbers, settings.step, corpus, micro_batches);
  for (size_t i = 0; i < micro_batches.size(); ++i) result.loss_sum += numbers[i];
  result.gradient_norm = numbers.back() / static_cast<double>(std::max<int64_t>(1, result.divisor));
  return result;
}

bool is_clipped(const StepResult& result, double clip_norm) {
  return clip_norm > 0 && result.gradient_norm > clip_norm;
}

double gradient_scale(const StepResult& result, double clip_norm) {
  const double mean = 1 / static_cast<double>(std::max<int64_t>(1, result.divisor));
  return is_clipped(result, clip_norm) ? mean * clip_norm / result.gradient_norm : mean;
}

}  // namespace draftsmith::train
