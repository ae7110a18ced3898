// Operations and bytes of a setting (infer/costs/decode_work.h) beside those of plain decoding.
#pragma once

#include <optional>

namespace draftsmith::evaluate {

// Work for one new token, over all lines. Ratios are to the task's greedy decoding.
struct WorkResult {
  double operations = 0;        // additions and multiplications
  double bytes = 0;             // of weights, keys and values
  double input_operations = 0;  // of these, encoders' and prompts'
  double input_bytes = 0;
  double draft_operations = 0;  // and the drafter's steps
  double draft_bytes = 0;
  std::optional<double> operations_ratio = {};
  std::optional<double> bytes_ratio = {};
  std::optional<double> intensity_ratio = {};
  std::optional<double> decode_operations_ratio = {};  // without encoders and prompts
  // Theorem 3.11 of Leviathan et al. at the measured alpha: what it says of decode_operations_ratio. Fixed windows
  // only.
  std::optional<double> theory_operations_ratio = {};
  std::optional<double> drafter_operations_ratio = {};  // c^: a drafter's token over the target's

  // Returns operations for each byte, the arithmetic intensity.
  double intensity() const { return operations / bytes; }
};

}  // namespace draftsmith::evaluate
