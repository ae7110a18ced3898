#include "train/gradient_sums.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace draftsmith::train {

namespace {

// Buckets on their way at a time where nothing is gained by more. Each may be a copy of its gradients.
constexpr size_t kFlights = 4;

}  // namespace

class GradientSums::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientSums& sums, size_t parameter) : sums_(sums), parameter_(parameter) {}
  void operator()(const at::Tensor&) override { sums_.arrived(parameter_); }

 private:
  GradientSums& sums_;
  size_t parameter_;
};

GradientSums::GradientSums(World& world, const TrainableModel& trainable, const GradientSumOptions& options)
    : world_(world), options_(options) {
  for (const auto& [name, parameter] : trainable.parameters()) {
    if (!parameter.requires_grad()) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*this, parameters_.size()));
    parameters_.push_back(parameter);
  }
}

GradientSums::~GradientSums() {
  for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientSums::arrived(size_t parameter) {
  if (buckets_.empty()) {
    if (std::find(order_.begin(), order_.end(), parameter) == order_.end()) order_.push_back(parameter);
    return;
  }
  if (!last_pass_ || !options_.overlap) return;
  --outstanding_[bucket_of_[parameter]];
  while (begun_ < buckets_.size() && outstanding_[begun_] == 0) begin_next();
}

void GradientSums::agree_on_buckets() {
  const auto count = static_cast<int64_t>(parameters_.size());
  std::vector<int64_t> places(order_.begin(), order_.end());
  places.resize(parameters_.size(), -1);
  const at::Tensor told = at::tensor(places, at::kLong).to(parameters_.front().device());
  world_.broadcast({told});
  const at::Tensor on_host = told.cpu();
  const int64_t* first = on_host.const_data_ptr<int64_t>();
  order_.assign(first, std::find(first, first + count, -1));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (std::find(order_.begin(), order_.end(), i) == order_.end()) order_.push_back(i);
  }
  std::vector<at::Tensor> in_order;
  for (const size_t i : order_) in_order.push_back(parameters_[i]);
  buckets_ = in_buckets(in_order, options_.type);
  bucket_of_.resize(parameters_.size());
  size_t next = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    outstanding_.push_back(buckets_[i].parts.size());
    for (size_t part = 0; part < buckets_[i].parts.size(); ++part) bucket_of_[order_[next++]] = i;
  }
}

void GradientSums::begin_next() {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& given : buckets_[begun_].parts) {
    at::Tensor parameter = given;
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    gradients.push_back(parameter.grad());
  }
  flights_.push_back(world_.begin_sum(gradients, options_.type));
  ++begun_;
}

void GradientSums::land() {
  flights_.front()();
  flights_.pop_front();
}

std::vector<double> GradientSums::sum_counts(StepCounts& counts, const std::vector<double>& present) {
  const at::Tensor losses = at::stack(counts.losses);
  std::vector<double> own{static_cast<double>(counts.labels), static_cast<double>(counts.divisor),
                          counts.stop ? 1.0 : 0.0};
  const auto numbers = static_cast<std::ptrdiff_t>(own.size());
  own.insert(own.end(), present.begin(), present.end());
  const at::Tensor all = at::cat({losses, at::tensor(own, at::kDouble).to(losses.device())});
  world_.sum({all});
  for (size_t i = 0; i < counts.losses.size(); ++i) counts.losses[i] = all[static_cast<int64_t>(i)];
  const at::Tensor on_host = all.narrow(0, losses.numel(), all.numel() - losses.numel()).cpu();
  const double* sums = on_host.const_data_ptr<double>();
  counts.labels = static_cast<int64_t>(sums[0]);
  counts.divisor = static_cast<int64_t>(sums[1]);
  counts.stop = sums[2] > 0;
  return {sums + numbers, sums + numbers + present.size()};
}

void GradientSums::finish(StepCounts& counts) {
  const at::NoGradGuard no_grad;
  std::vector<double> present;  // 1 for each parameter with a gradient
  for (const at::Tensor& parameter : parameters_) present.push_back(parameter.grad().defined() ? 1 : 0);
  if (buckets_.empty()) agree_on_buckets();
  while (begun_ < buckets_.size()) {
    if (flights_.size() >= kFlights) land();
    begin_next();
  }
  // The counts are last on all processes: the buckets that began before this function differ.
  present = sum_counts(counts, present);
  while (!flights_.empty()) land();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (present[i] == 0) parameters_[i].mutable_grad().reset();
  }
  last_pass_ = false;
  begun_ = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) outstanding_[i] = buckets_[i].parts.size();
}

}  // namespace draftsmith::train
