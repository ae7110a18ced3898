// Optimizers against their formulas and the Python originals, and parameter groups.
#include "train/optimizers/optimizer.h"

#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/child_process.h"
#include "base/files.h"
#include "base/json.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"
#include "tests/support/errors.h"
#include "tests/support/paths.h"
#include "tests/support/tensors.h"

namespace draftsmith::train {
namespace {

std::map<std::string, at::Tensor> two_parameters() {
  at::manual_seed(11);
  std::map<std::string, at::Tensor> parameters;
  parameters["matrix.weight"] = at::randn({4, 6}).requires_grad_(true);
  parameters["vector.weight"] = at::randn({5}).requires_grad_(true);
  return parameters;
}

// Gradients that depend on the step alone.
void set_gradients(const std::map<std::string, at::Tensor>& parameters, int64_t step) {
  at::manual_seed(static_cast<uint64_t>(100 + step));
  for (const auto& [name, parameter] : parameters) parameter.mutable_grad() = at::randn(parameter.sizes());
}

void take_steps(Optimizer& optimizer, const std::map<std::string, at::Tensor>& parameters, int64_t from, int64_t to) {
  for (int64_t step = from; step < to; ++step) {
    set_gradients(parameters, step);
    optimizer.step(0.01 * static_cast<double>(step + 1), 0.5);
  }
}

TEST(AdamW, FollowsItsFormula) {
  auto parameters = two_parameters();
  const at::Tensor weight = parameters.at("vector.weight");
  at::Tensor expected = weight.detach().clone().to(at::kDouble);
  at::Tensor first = at::zeros_like(expected), second = at::zeros_like(expected);
  const auto optimizer =
      make_optimizer(parameters, {.weight_decay = 0.1, .adamw = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-2}});
  for (int step = 1; step <= 5; ++step) {
    set_gradients(parameters, step);
    const at::Tensor g = weight.grad().to(at::kDouble) * 0.5;
    optimizer->step(0.01, 0.5);
    expected *= 1 - 0.01 * 0.1;
    first = 0.8 * first + 0.2 * g;
    second = 0.95 * second + 0.05 * g * g;
    const at::Tensor root = (second / (1 - std::pow(0.95, step))).sqrt() + 1e-2;
    expected -= 0.01 * (first / (1 - std::pow(0.8, step))) / root;
  }
  EXPECT_LT(difference(weight.detach(), expected), 1e-6);
}

TEST(Optimizers, GroupsScaleTheRateOfWhatTheyMatch) {
  for (const char* name : {"adamw", "adafactor"}) {
    auto plain = two_parameters(), grouped = two_parameters();
    const auto before = plain.at("matrix.weight").detach().clone();
    OptimizerOptions options{.name = name, .lr = 1, .weight_decay = 0, .adamw = {}, .adafactor = {}, .groups = {}};
    const auto one = make_optimizer(plain, options);
    options.groups = {{.parameters = "matrix.*", .lr_factor = 0.25, .weight_decay_factor = 1}};
    const auto other = make_optimizer(grouped, options);
    take_steps(*one, plain, 0, 1);
    take_steps(*other, grouped, 0, 1);
    const at::Tensor full = plain.at("matrix.weight").detach() - before;
    const at::Tensor quarter = grouped.at("matrix.weight").detach() - before;
    EXPECT_LT(difference(quarter, 0.25 * full), 1e-6) << name;
    EXPECT_TRUE(plain.at("vector.weight").equal(grouped.at("vector.weight"))) << name;
  }
}

TEST(Optimizers, TheFirstMatchingGroupCountsAndZeroFreezes) {
  OptimizerOptions options{.weight_decay = 0.5};
  options.groups = {{.parameters = "vector.weight", .lr_factor = 0, .weight_decay_factor = 2},
                    {.parameters = "*.weight", .lr_factor = 3, .weight_decay_factor = 0}};
  auto parameters = two_parameters();
  const auto grouped = group_parameters(parameters, options);
  EXPECT_EQ(grouped[0].lr_factor, 3);
  EXPECT_EQ(grouped[0].weight_decay, 0);
  EXPECT_EQ(grouped[1].lr_factor, 0);
  EXPECT_EQ(grouped[1].weight_decay, 1);
  const at::Tensor frozen = parameters.at("vector.weight").detach().clone();
  take_steps(*make_optimizer(parameters, options), parameters, 0, 3);
  EXPECT_TRUE(parameters.at("vector.weight").equal(frozen));
}

TEST(Optimizers, AGroupWithoutParametersIsAnError) {
  OptimizerOptions options{.groups = {{.parameters = "*.qery.weight"}}};
  EXPECT_THAT(error_of([&] { make_optimizer(two_parameters(), options); }), testing::HasSubstr("*.qery.weight"));
}

OptimizerOptions adafactor(bool scale_parameter, std::optional<double> beta1, double weight_decay) {
  OptimizerOptions options{.name = "adafactor", .weight_decay = weight_decay};
  options.adafactor.scale_parameter = scale_parameter;
  options.adafactor.beta1 = beta1;
  return options;
}

// Parameters after 12 steps of Transformers' Adafactor on stored gradients.
void expect_equals_transformers(const OptimizerOptions& options) {
  const TemporaryDirectory folder;
  auto parameters = two_parameters();
  std::vector<model::TensorToStore> start, gradients;
  for (const auto& [name, tensor] : parameters) start.push_back({.name = name, .tensor = tensor.detach()});
  for (int64_t step = 0; step < 12; ++step) {
    set_gradients(parameters, step);
    for (const auto& [name, tensor] : parameters) {
      gradients.push_back({.name = name + "@" + std::to_string(step), .tensor = tensor.grad() * 3});
    }
  }
  model::write_safetensors(folder / "start.safetensors", start);
  model::write_safetensors(folder / "gradients.safetensors", gradients);
  const nlohmann::ordered_json arguments{
      {"lr", 0.02},
      {"eps", {options.adafactor.epsilon1, options.adafactor.epsilon2}},
      {"clip_threshold", options.adafactor.clip_threshold},
      {"decay_rate", options.adafactor.decay_rate},
      {"beta1", options.adafactor.beta1 ? nlohmann::ordered_json(*options.adafactor.beta1) : nlohmann::ordered_json()},
      {"weight_decay", options.weight_decay},
      {"scale_parameter", options.adafactor.scale_parameter}};
  write_json(folder / "options.json", arguments);
  const std::string script = test::source_dir() / "tests/train/reference.py";
  const ShellResult reference =
      run_shell(fmt::format("'{}' '{}' '{}'", test::peers_python().string(), script, folder.path().string()), "");
  ASSERT_TRUE(reference.succeeded()) << reference.errors;

  const auto optimizer = make_optimizer(parameters, options);
  for (int64_t step = 0; step < 12; ++step) {
    set_gradients(parameters, step);
    optimizer->step(0.02, 3);
  }
  const model::SafetensorsFile expected(folder / "result.safetensors");
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor theirs = expected.stored(name).to(at::kFloat);
    EXPECT_LT(difference(tensor.detach(), theirs), 2e-6) << name;
  }
}

TEST(AdafactorParity, EqualsTransformers) {
  if (!std::filesystem::exists(test::peers_python())) {
    GTEST_SKIP() << "no Python with Transformers (.venv-peers or DRAFTSMITH_PEERS_PYTHON)";
  }
  expect_equals_transformers(adafactor(false, std::nullopt, 0));
  OptimizerOptions others = adafactor(true, 0.9, 0.01);
  others.adafactor.epsilon1 = 1e-2;
  others.adafactor.epsilon2 = 0.5;
  others.adafactor.clip_threshold = 0.3;
  others.adafactor.decay_rate = -0.5;
  expect_equals_transformers(others);
}

}  // namespace
}  // namespace draftsmith::train
