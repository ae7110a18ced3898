// What holds of every trainable: right gradients, and runs that resume with the same bits.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/random_tensors.h"
#include "base/signals.h"
#include "tests/train/fixtures.h"
#include "train/objectives/cross_entropy.h"

namespace draftsmith::train {

// Compares each parameter's gradient with the change of the loss along a random direction. fp64.
inline void expect_right_gradients(TrainableModel& trainable, const Batch& batch) {
  CrossEntropy objective({.label_smoothing = 0.1});
  const model::DropoutContext dropout{.probability = 0.1, .seed = 4, .step = 2};
  require_gradients(trainable, true);
  objective.loss(trainable, batch, dropout).sum.backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (const auto& [name, parameter] : trainable.parameters()) {
    at::Tensor value = parameter;
    const at::Tensor direction = normal_tensor(value.sizes().vec(), 1, 9, name, at::kDouble);
    const auto loss_at = [&](double distance) {
      value.add_(direction, distance);
      const double loss = objective.loss(trainable, batch, dropout).sum.item<double>();
      value.sub_(direction, distance);
      return loss;
    };
    const double numeric = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    const at::Tensor gradient = value.grad();
    const double ours = gradient.defined() ? (gradient * direction).sum().item<double>() : 0;
    EXPECT_NEAR(ours, numeric, 1e-5 * std::max(1.0, std::abs(numeric))) << name;
  }
}

// Trains something anew, from weights of this seed, in FOLDER/<run>.
using TrainFrom = std::function<void(uint64_t seed, const std::string& run)>;

// A run that was stopped twice, and went on each time from a start whose weights the checkpoint must replace, ends
// with the same bits as one that never was. `files` of the result and of the last checkpoint.
inline void expect_exact_resume(const std::filesystem::path& folder, const TrainFrom& run,
                                const std::vector<std::string>& files,
                                const std::vector<std::string>& in_checkpoint = {}) {
  run(3, "whole");
  for (int stops = 0; stops < 2; ++stops) {
    const SignalWatch watch;
    raise(SIGTERM);
    EXPECT_THROW(run(3, "stopped"), Interrupted);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "stopped/model"));
  run(8, "stopped");
  const auto expect_same = [&](const std::string& file) {
    EXPECT_TRUE(read_file(folder / "whole" / file) == read_file(folder / "stopped" / file)) << file;
  };
  for (const std::string& file : files) expect_same("model/" + file);
  for (const std::string& file : in_checkpoint.empty() ? files : in_checkpoint) {
    expect_same("checkpoints/last/model/" + file);
  }
  expect_same("checkpoints/last/optimizer.safetensors");
}

}  // namespace draftsmith::train
