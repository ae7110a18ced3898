// The speed of a model's parts beside what the machine allows: steps by number of tokens, encoder or prompt, the rate
// of reading memory and that of matrix products, all in turns.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/util.h"
#include "infer/costs/step_work.h"
#include "infer/costs/timed_prompt.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

struct SpeedQuestion {
  c10::ScalarType type = at::kFloat;  // of the weights; kChar: int8
  std::vector<int64_t> tokens = {1};  // of the steps, rising from 1
  int64_t rows = 1;                   // of the batch
  int64_t length = 64;                // tokens in the cache before a step, at least 1
  int64_t source = 32;                // tokens of a source or prompt, at least 1
  int64_t rounds = 25;                // at least 1
};

// A rate of the machine, in bytes or operations a second.
struct RateSpeed {
  std::string description;
  Spread rate;
};

struct PromptSpeed {
  PromptPart part = PromptPart::kEncoder;
  Work work;
  Spread seconds;
};

struct StepSpeed {
  int64_t tokens = 1;  // of each row
  Work work;
  Spread seconds;
  std::optional<AllocationCount> allocations;  // on the host; nothing if they could not be counted
};

struct ModelSpeed {
  RateSpeed memory;    // on CPUs reading; on devices copying, bytes read and written
  RateSpeed products;  // on CPUs in fp32; on devices in the model's type
  std::vector<PromptSpeed> prompt;
  std::vector<StepSpeed> steps;  // as SpeedQuestion::tokens

  // Returns the seconds that the machine needs for the work: its bytes at the memory's rate or its operations at the
  // rate of products, whichever takes longer.
  double least_seconds(const Work& work) const;
};

// Measures in rounds, after two that warm up: each round measures everything once. Calls `after_round` after each of
// them, which may throw to end the measurement.
ModelSpeed measure_speed(model::TransformerModel& model, const SpeedQuestion& question,
                         const std::function<void()>& after_round);
// Rounds that measure_speed() runs and does not count.
inline constexpr int64_t kSpeedWarmup = 2;

}  // namespace draftsmith::infer
