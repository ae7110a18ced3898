#include "train/training_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/bf16_product.h"
#include "base/device_tensors.h"
#include "base/signals.h"
#include "model/cpu/instructions.h"
#include "train/data_parallel.h"

namespace draftsmith::train {

bool trains_in_bf16(const std::string& precision, at::Device device) {
  if (precision != "auto") return precision == "bf16";
  const auto needed = has_bf16_tiles() ? model::Instructions::kAmx : model::Instructions::kAvx512;
  return device.is_cpu() && has_bf16_product() && model::cpu_instructions() >= needed;
}

void add_to_window(TrainingState& state, const StepResult& result, double clip_norm, double seconds) {
  state.seconds += seconds;
  state.window_seconds += seconds;
  if (result.nonfinite) return;
  state.window_loss += result.loss_sum;
  state.window_labels += result.labels;
  state.window_divisor += result.divisor;
  ++state.window_updates;
  if (is_clipped(result, clip_norm)) ++state.window_clipped;
  state.window_largest_norm = std::max(state.window_largest_norm, result.gradient_norm);
}

StepMetrics window_metrics(const TrainingState& state, double lr, double gradient_norm) {
  const auto labels = static_cast<double>(std::max<int64_t>(1, state.window_labels));
  const auto divisor = static_cast<double>(std::max<int64_t>(1, state.window_divisor));
  const auto updates = static_cast<double>(std::max<int64_t>(1, state.window_updates));
  const bool all_skipped = state.window_updates == 0 && state.skipped_in_a_row > 0;
  return {.step = state.step,
          .epochs = state.epochs,
          .labels = state.labels,
          .loss = all_skipped ? std::numeric_limits<double>::quiet_NaN() : state.window_loss / divisor,
          .lr = lr,
          .gradient_norm = gradient_norm,
          .largest_norm = state.window_largest_norm,
          .clipped = static_cast<double>(state.window_clipped) / updates,
          .skipped = state.skipped,
          .labels_per_second = labels / std::max(state.window_seconds, 1e-9),
          .seconds = state.seconds};
}

void clear_window(TrainingState& state) {
  state.window_loss = state.window_seconds = state.window_largest_norm = 0;
  state.window_labels = state.window_divisor = state.window_updates = state.window_clipped = 0;
}

StepBatches::Step StepBatches::step_at(const data::BatchPosition& position) {
  Step step{.examples = {}, .before = position, .after = position};
  do {
    step.examples.push_back(order_.next(step.after));
  } while (std::ssize(step.examples) < accumulate_ && step.after.batch != 0);
  return step;
}

MicroBatches StepBatches::next(data::BatchPosition& position) {
  std::optional<Step> now = std::exchange(upcoming_, std::nullopt);
  begun_now_ = std::move(begun_next_);
  ready_.clear();
  const bool expected = now && now->before.epoch == position.epoch && now->before.batch == position.batch;
  if (!expected) {
    now = step_at(position);
    begun_now_ = {};
  }
  position = now->after;
  if (!device_.is_cpu()) {
    upcoming_ = step_at(position);
    begun_next_ = begin(upcoming_->examples);
  }
  return std::move(now->examples);
}

std::future<StepBatches::HostBatches> StepBatches::begin(const MicroBatches& examples) const {
  MicroBatches own;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (world_.has(static_cast<int64_t>(i))) own.push_back(examples[i]);
  }
  return std::async(std::launch::async, [make = make_, own = std::move(own)] {
    HostBatches made;
    for (const std::vector<int64_t>& batch : own) made.push_back(make(batch));
    return made;
  });
}

Batch StepBatches::take(const std::vector<int64_t>& examples) {
  if (begun_now_.valid()) ready_ = begun_now_.get();
  if (ready_.empty()) return to_device(make_(examples), device_);
  HostBatch host = std::move(ready_.front());
  ready_.pop_front();
  if (host.batch.examples != examples) throw std::logic_error("a step's batches are taken in their order");
  return to_device(std::move(host), device_);
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

std::string listed(const std::vector<int64_t>& examples) {
  std::string text;
  for (const int64_t example : examples) text += (text.empty() ? "" : ", ") + std::to_string(example);
  return text;
}

Problem nonfinite_problem(const std::string& what, int64_t step, const data::Corpus& corpus,
                          const std::vector<int64_t>& examples) {
  return {.where = corpus.file().string(),
          .what = what + " in training step " + std::to_string(step),
          .expected = "a finite number",
          .found = "NaN or infinity from the examples " + listed(examples),
          .hint =
              "look at them with `draftsmith data show`; else lower the learning rate, warm up longer or clip, in "
              "a run that continues this one (`continue_from`), or skip such steps (nonfinite = \"skip\"). The "
              "last checkpoint is unharmed"};
}

// Returns a problem that names the data if a loss or the norm is not finite. `values` are the micro-batches' losses,
// then the norm.
std::optional<Problem> find_nonfinite(const std::vector<double>& values, int64_t step, const data::Corpus& corpus,
                                      const MicroBatches& micro_batches) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (!std::isfinite(values[i])) return nonfinite_problem("the loss is not finite", step, corpus, micro_batches[i]);
    all.insert(all.end(), micro_batches[i].begin(), micro_batches[i].end());
  }
  if (!std::isfinite(values.back())) return nonfinite_problem("a gradient is not finite", step, corpus, all);
  return std::nullopt;
}

// Makes the forward and backward pass of one micro-batch, the step's `number`th.
Loss add_gradients(TrainableModel& trainable, Objective& objective, const data::Corpus& corpus,
                   const std::vector<int64_t>& examples, const StepSettings& settings, size_t number) {
  const Batch batch = settings.batches != nullptr
                          ? settings.batches->take(examples)
                          : make_batch(corpus, examples, trainable.info(), settings.pack_tokens);
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

}  // namespace

StepResult accumulate_gradients(TrainableModel& trainable, Objective& objective, const data::Corpus& corpus,
                                const MicroBatches& micro_batches, const StepSettings& settings) {
  ProcessGroup& world = *settings.world;
  StepCounts counts;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    if (!world.has(static_cast<int64_t>(i))) {
      counts.losses.push_back(at::zeros({}, at::TensorOptions(trainable.info().device).dtype(at::kDouble)));
      continue;
    }
    const Loss loss = add_gradients(trainable, objective, corpus, micro_batches[i], settings, i);
    counts.losses.push_back(loss.sum.detach().to(at::kDouble));
    counts.labels += loss.count;
    counts.divisor += loss.divisor();
  }
  if (!world.is_alone()) {
    counts.stop = stop_requested() != 0;
    sum_gradients(world, trainable, settings.reduce_type, counts);
  }
  StepResult result{.labels = counts.labels, .divisor = counts.divisor, .stop = counts.stop};
  std::vector<at::Tensor>& values = counts.losses;
  values.push_back(global_norm(trainable).to(at::kDouble));
  // Loss and norm reach the host together, so that a GPU is waited for once.
  const at::Tensor on_host = at::stack(values).cpu();
  const std::vector<double> numbers(on_host.data_ptr<double>(), on_host.data_ptr<double>() + on_host.numel());
  result.nonfinite = find_nonfinite(numbers, settings.step, corpus, micro_batches);
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
