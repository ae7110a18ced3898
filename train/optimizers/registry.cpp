// The explicit list of optimizers.
#include <array>

#include "train/optimizers/adafactor.h"
#include "train/optimizers/adamw.h"

namespace draftsmith::train {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(std::vector<OptimizedParameter>, const OptimizerOptions&);
};

constexpr std::array kOptimizers{
    Entry{"adamw",
          [](std::vector<OptimizedParameter> parameters, const OptimizerOptions& options)
              -> std::unique_ptr<Optimizer> { return std::make_unique<AdamW>(std::move(parameters), options.adamw); }},
    Entry{
        "adafactor",
        [](std::vector<OptimizedParameter> parameters, const OptimizerOptions& options) -> std::unique_ptr<Optimizer> {
          return std::make_unique<Adafactor>(std::move(parameters), options.adafactor);
        }},
};

std::vector<std::string> known() {
  std::vector<std::string> names;
  for (const Entry& entry : kOptimizers) names.emplace_back(entry.name);
  return names;
}

}  // namespace

Fields<OptimizerOptions> OptimizerOptions::fields() {
  return Fields<OptimizerOptions>("optimizer")
      .add("name", &OptimizerOptions::name, Choices(known()), "Which optimizer.")
      .add("lr", &OptimizerOptions::lr, Range{0, 100}, "Peak learning rate; the schedule's factor is applied to it.")
      .add("weight_decay", &OptimizerOptions::weight_decay, Range{0, 100},
           "Decoupled weight decay: each step takes lr * weight_decay of every weight off.")
      .add("adamw", &OptimizerOptions::adamw, "Options of adamw.")
      .add("adafactor", &OptimizerOptions::adafactor, "Options of adafactor.")
      .add("groups", &OptimizerOptions::groups, "Parameters with rates of their own.");
}

std::unique_ptr<Optimizer> make_optimizer(const std::map<std::string, at::Tensor>& parameters,
                                          const OptimizerOptions& options) {
  Problems problems;
  validate_options(options, "optimizer", problems);
  problems.throw_if_any();
  const auto found = std::find_if(kOptimizers.begin(), kOptimizers.end(),
                                  [&](const Entry& entry) { return entry.name == options.name; });
  return found->make(group_parameters(parameters, options), options);
}

}  // namespace draftsmith::train
