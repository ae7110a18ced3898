// Optimizers on the device: updates are the CPU's, and their launches do not grow with the number of parameters.
#include "train/optimizers/optimizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
#include "tests/support/tensors.h"

namespace draftsmith::train {
namespace {

using Parameters = std::map<std::string, at::Tensor>;

// `layers` times a matrix, another that learns slowly, and a vector.
Parameters parameters_of(int64_t layers, at::Device device) {
  Parameters parameters;
  for (int64_t i = 0; i < layers; ++i) {
    const auto add = [&](const std::string& name, at::IntArrayRef shape) {
      parameters[fmt::format("{}.{}", i, name)] =
          random_tensor(shape, static_cast<uint64_t>(i + 1), at::kDouble).to(device).requires_grad_(true);
    };
    add("matrix", {4, 6});
    add("slow", {4, 6});
    add("vector", {5});
  }
  return parameters;
}

// Gives all parameters but one gradients.
void set_gradients(const Parameters& parameters, uint64_t step) {
  for (const auto& [name, value] : parameters) {
    if (name == "1.matrix" && step == 1) continue;
    const at::Tensor gradient = random_tensor(value.sizes(), 100 + step, at::kDouble) * static_cast<double>(name[0]);
    value.mutable_grad() = gradient.to(value.device());
  }
}

OptimizerOptions options_of(const std::string& name, bool all) {
  OptimizerOptions options;
  options.name = name;
  options.groups = {{.parameters = "*.slow", .lr_factor = 0.25}};
  if (!all) return options;
  options.weight_decay = 0.1;
  options.adafactor.scale_parameter = true;
  options.adafactor.beta1 = 0.9;
  return options;
}

Parameters trained(const OptimizerOptions& options, at::Device device) {
  const Parameters parameters = parameters_of(3, device);
  const auto optimizer = make_optimizer(parameters, options);
  for (uint64_t step = 0; step < 3; ++step) {
    set_gradients(parameters, step);
    optimizer->step(0.01, 0.5);
    optimizer->zero_grad();
  }
  Parameters found;
  for (const auto& [name, value] : parameters) found[name] = value.detach().to(at::kCPU);
  for (const auto& [name, value] : optimizer->state()) found["state " + name] = value.to(at::kCPU);
  return found;
}

TEST(DeviceOptimizers, UpdateAsOnTheCpu) {
  for (const char* name : {"adamw", "adafactor"}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", name, all));
      const Parameters expected = trained(options_of(name, all), at::kCPU);
      const Parameters found = trained(options_of(name, all), on_device::test_device());
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [key, value] : expected) EXPECT_LT(difference(found.at(key), value), 1e-12) << key;
    }
  }
}

// The numbers are those of today, of three groups of parameters.
TEST(DeviceOptimizers, LaunchesDoNotGrowWithTheParameters) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  for (const auto& [name, all, budget] :
       {std::tuple{"adamw", true, 4}, {"adafactor", false, 64}, {"adafactor", true, 96}}) {
    std::vector<standin::Counts> counts;
    for (const int64_t layers : {2, 9}) {
      const Parameters parameters = parameters_of(layers, on_device::test_device());
      const auto optimizer = make_optimizer(parameters, options_of(name, all));
      set_gradients(parameters, 0);
      standin::reset_counts();
      optimizer->step(0.01, 0.5);
      counts.push_back(standin::counts());
    }
    std::string by_name;
    for (const auto& [operation, count] : counts[1].launches) by_name += fmt::format(" {} {}", operation, count);
    SCOPED_TRACE(fmt::format("{}:{}", name, by_name));
    EXPECT_EQ(counts[0].all_launches(), counts[1].all_launches());
    EXPECT_LE(counts[1].all_launches(), budget);
    EXPECT_EQ(counts[1].waits, 0);
  }
}

}  // namespace
}  // namespace draftsmith::train
