#include "infer/costs/model_speed.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <ATen/Parallel.h>

#include "infer/costs/machine_rates.h"
#include "infer/costs/step_costs.h"

namespace draftsmith::infer {

namespace {

std::unique_ptr<MachineRate> memory_rate(at::Device device) {
  constexpr int64_t kCopied = int64_t{1} << 30;  // more than the caches of any device hold
  return device.is_cpu() ? read_rate(uncached_bytes()) : copy_rate(device, kCopied);
}

// Products large enough for the full rate and done in a few hundredths of a second.
std::unique_ptr<MachineRate> matrix_rate(const model::ModelInfo& model) {
  if (!model.device.is_cpu()) return product_rate(model.device, model.dtype, 4096);
  return product_rate(model.device, at::kFloat, at::get_num_threads() > 8 ? 2048 : 1024);
}

// Everything that a round measures, with the values of all rounds.
class Rounds {
 public:
  Rounds(model::TransformerModel& model, const SpeedQuestion& question)
      : model_(model),
        question_(question),
        memory_(memory_rate(model.info().device)),
        products_(matrix_rate(model.info())),
        prompt_(model, random_sources(1, question.source, model.info().vocabulary).front(), question.rows, 1),
        step_(model, random_context(model.info(), {question.rows, question.source, question.length}),
              std::ranges::max(question.tokens)),
        parts_(prompt_parts(model.info())),
        prompt_seconds_(parts_.size()),
        step_seconds_(question.tokens.size()) {}

  void run(bool counts) {
    const auto keep = [counts](std::vector<double>& values, double value) {
      if (counts) values.push_back(value);
    };
    keep(memory_rates_, memory_->measure());
    keep(product_rates_, products_->measure());
    for (size_t i = 0; i < parts_.size(); ++i) keep(prompt_seconds_[i], prompt_.run(parts_[i]));
    step_seconds(1);  // a step after other work finds the caches without weights
    for (size_t i = 0; i < step_seconds_.size(); ++i) keep(step_seconds_[i], step_seconds(question_.tokens[i]));
  }

  ModelSpeed result() {
    ModelSpeed speed{{memory_->description(), spread_of(memory_rates_)},
                     {products_->description(), spread_of(product_rates_)},
                     {},
                     {}};
    for (size_t i = 0; i < parts_.size(); ++i) {
      speed.prompt.push_back({parts_[i], work_of(parts_[i]), spread_of(prompt_seconds_[i])});
    }
    for (size_t i = 0; i < step_seconds_.size(); ++i) speed.steps.push_back(step_speed(i));
    return speed;
  }

 private:
  double step_seconds(int64_t tokens) {
    step_.go_back();
    return step_.run(tokens);
  }

  StepSpeed step_speed(size_t index) {
    const int64_t tokens = question_.tokens[index];
    const StepSize size{question_.rows, tokens, question_.length, question_.source};
    step_seconds(tokens);  // memory that is kept from step to step is there now
    step_.go_back();
    return {tokens, step_work(model_.config(), question_.type, size), spread_of(step_seconds_[index]),
            step_.allocations(tokens)};
  }

  Work work_of(PromptPart part) const {
    const model::TransformerConfig& config = model_.config();
    switch (part) {
      case PromptPart::kEncoder:
        return encoder_work(config, question_.type, question_.rows, question_.source);
      case PromptPart::kCrossAttention:
        return cross_attention_work(config, question_.type, question_.rows, question_.source);
      case PromptPart::kPrompt:
        return prompt_work(config, question_.type, question_.rows, question_.source);
    }
    throw std::logic_error("unknown part of the work before the first token");
  }

  model::TransformerModel& model_;
  const SpeedQuestion& question_;
  std::unique_ptr<MachineRate> memory_;
  std::unique_ptr<MachineRate> products_;
  TimedPrompt prompt_;
  TimedModel step_;
  std::vector<PromptPart> parts_;
  std::vector<double> memory_rates_;
  std::vector<double> product_rates_;
  std::vector<std::vector<double>> prompt_seconds_;
  std::vector<std::vector<double>> step_seconds_;
};

}  // namespace

double ModelSpeed::least_seconds(const Work& work) const {
  return std::max(work.bytes() / memory.rate.median, work.operations / products.rate.median);
}

ModelSpeed measure_speed(model::TransformerModel& model, const SpeedQuestion& question,
                         const std::function<void()>& after_round) {
  Rounds rounds(model, question);
  for (int64_t round = -kSpeedWarmup; round < question.rounds; ++round) {
    rounds.run(round >= 0);
    after_round();
  }
  return rounds.result();
}

}  // namespace draftsmith::infer
