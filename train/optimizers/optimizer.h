// Optimizers turn gradients into new parameters: AdamW and Adafactor. An optimizer owns its state tensors under stable
// names, so that a training checkpoint can store and restore them exactly; its only number is the count of steps.
//
// A new optimizer is a class in optimizer.cpp, its options below, and its name in make_optimizer().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/options.h"

namespace draftsmith::train {

// Parameters with their own learning rate. Patterns are matched against canonical names
// (model/transformer/parameters.h); `*` is any text, `?` any character. The first that matches counts.
struct ParameterGroupOptions {
  std::string parameters = {};
  double lr_factor = 1.0;
  double weight_decay_factor = 1.0;
  static Fields<ParameterGroupOptions> fields();
};

// Kingma and Ba 2015, decoupled weight decay by Loshchilov and Hutter 2019.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  static Fields<AdamWOptions> fields();
};

// Shazeer and Stern 2018, as Transformers' Adafactor computes it with relative_step off.
struct AdafactorOptions {
  bool scale_parameter = false;
  double clip_threshold = 1.0;
  double decay_rate = -0.8;
  double epsilon1 = 1e-30;
  double epsilon2 = 1e-3;
  std::optional<double> beta1 = {};
  static Fields<AdafactorOptions> fields();
};

struct OptimizerOptions {
  std::string name = "adamw";
  double lr = 1e-3;
  double weight_decay = 0.0;
  AdamWOptions adamw = {};
  AdafactorOptions adafactor = {};
  std::vector<ParameterGroupOptions> groups = {};
  static Fields<OptimizerOptions> fields();
};

// A parameter and its rates.
struct OptimizedParameter {
  std::string name;
  at::Tensor value;  // fp32 (fp64 in tests): the master weight
  double lr_factor = 1.0;
  double weight_decay = 0.0;  // the optimizer's, times the group's factor
};

// Applies the groups. Errors (UserError, all at once): a pattern that matches no parameter left over by earlier ones.
std::vector<OptimizedParameter> group_parameters(const std::map<std::string, at::Tensor>& parameters,
                                                 const OptimizerOptions& options);

class Optimizer {
 public:
  explicit Optimizer(std::vector<OptimizedParameter> parameters);
  virtual ~Optimizer() = default;

  // Makes one update from the parameters' gradients, each first multiplied by `gradient_scale` (1/labels, and
  // clipping). Parameters without a gradient stay unchanged. The content of the gradients is unspecified afterwards.
  void step(double lr, double gradient_scale);
  // Drops all gradients.
  void zero_grad();

  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }
  int64_t steps() const { return steps_; }

  // Returns the state tensors by "<parameter name>/<state name>", shared with the optimizer. All exist, as zeros, from
  // construction on.
  virtual std::map<std::string, at::Tensor> state() const = 0;
  // Sets the count of steps, which the updates depend on.
  void set_steps(int64_t steps) { steps_ = steps; }

 protected:
  virtual void update(double lr, double gradient_scale) = 0;

 private:
  std::vector<OptimizedParameter> parameters_;
  int64_t steps_ = 0;
};

// Makes the optimizer that the options name, over the model's parameters. Errors: UserError for options out of range.
std::unique_ptr<Optimizer> make_optimizer(const std::map<std::string, at::Tensor>& parameters,
                                          const OptimizerOptions& options);

}  // namespace draftsmith::train
