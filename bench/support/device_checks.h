// Checks that a device decodes as it should: by own kernels and recorded steps, with right numbers, and without loss.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace draftsmith::bench {

struct CheckSettings {
  std::string shape;  // bench/support/shapes.h; its weights are random
  c10::Device device{c10::kCPU};
  c10::ScalarType type = c10::ScalarType::Float;
  bool require_kernels = false;  // a device that runs no own kernels fails
  int64_t lines = 8;             // that are decoded
  int64_t new_tokens = 24;       // of each
};

struct CheckResult {
  std::string name;
  std::string shape;
  std::string dtype;
  double value = 0;
  double bound = 0;       // the most that passes
  bool at_least = false;  // the bound is the least that passes
  bool passed = false;
  std::string note;     // why the bound does not hold here; empty: it does
  std::string problem;  // the error that ended the check; empty: none
};

using OnCheck = std::function<void(const CheckResult&)>;

// Checks the ways of decoding, in a few seconds: own kernels run, steps are recorded, and neither changes the numbers.
void check_ways(const CheckSettings& settings, const OnCheck& report);

// Checks numbers of real sizes: logits by own kernels beside LibTorch's, a row alone and among others, and outputs of
// methods that must equal greedy decoding's.
void check_numbers(const CheckSettings& settings, const OnCheck& report);

}  // namespace draftsmith::bench
