// Optimizers turn gradients into new parameters: AdamW and Adafactor, whole or with their state sharded over processes.
// An optimizer owns its state tensors under stable names, so that a training checkpoint can store and restore them
// exactly; its only number is the count of steps.
//
// A new optimizer is a .cpp in this folder, its options and its entry's function below, and its line in optimizer.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/options.h"
#include "distributed/process_group.h"

namespace draftsmith::train {

// Parameters with their own learning rate. Patterns are matched against canonical names
// (model/transformer/parameters.h); `*` is any text, `?` any character. The first group that matches a parameter
// counts.
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

  // Returns whether each process of a group has the state of other parameters.
  virtual bool is_sharded() const { return false; }
  // Returns this process's state tensors by "<parameter name>/<state name>", shared with the optimizer. All exist, as
  // zeros, from construction on.
  virtual std::map<std::string, at::Tensor> state() const = 0;
  // Copies a stored state back. Errors: std::logic_error for names or shapes that state() does not have.
  void restore(const std::map<std::string, at::Tensor>& stored, int64_t steps);
  // Sets the count of steps, which the updates depend on.
  virtual void set_steps(int64_t steps) { steps_ = steps; }

 protected:
  virtual void update(double lr, double gradient_scale) = 0;

 private:
  std::vector<OptimizedParameter> parameters_;
  int64_t steps_ = 0;
};

// Makes the optimizer that the options name, over the model's parameters. Errors: UserError for options out of range.
std::unique_ptr<Optimizer> make_optimizer(const std::map<std::string, at::Tensor>& parameters,
                                          const OptimizerOptions& options);

// The same over parameters whose groups have been applied; there may be none.
std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizedParameter> parameters, const OptimizerOptions& options);

// An optimizer in the list of optimizer.cpp.
struct OptimizerEntry {
  std::string name;
  std::unique_ptr<Optimizer> (*make)(std::vector<OptimizedParameter> parameters, const OptimizerOptions& options);
};
OptimizerEntry adamw_optimizer();
OptimizerEntry adafactor_optimizer();

// ---- Sharded state
// Optimizer state sharded over the processes of a group: stage 1 of ZeRO (Rajbhandari et al. 2020, section 5.1), as
// torch's ZeroRedundancyOptimizer does it. Whole parameters are divided. Each process keeps state for its own ones,
// updates these from the summed gradients, and gives them to the others. The numbers are those of an optimizer that is
// not sharded, to the bit.

// Returns the owner of each parameter: the largest first, each goes to the process that has the fewest numbers so far.
// Depends on sizes and order only.
std::vector<int64_t> deal_parameters(const std::vector<OptimizedParameter>& parameters, int64_t world_size);

class ShardedOptimizer : public Optimizer {
 public:
  // Takes valid options. Errors: as group_parameters().
  ShardedOptimizer(const std::map<std::string, at::Tensor>& parameters, const OptimizerOptions& options,
                   ProcessGroup& world);

  bool is_sharded() const override { return true; }
  std::map<std::string, at::Tensor> state() const override { return own_->state(); }
  void set_steps(int64_t steps) override;

 protected:
  void update(double lr, double gradient_scale) override;

 private:
  ProcessGroup& world_;
  std::vector<int64_t> owners_;     // of each parameter
  std::unique_ptr<Optimizer> own_;  // updates this process's parameters
};

}  // namespace draftsmith::train
