// Simulation of PPD on several devices from times measured on one. Theorem 4.1 (Yang et al. 2024) leaves out heads,
// wider passes and copies between processes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/inside/ppd.h"

namespace draftsmith::evaluate {

// Median seconds of the parts of decoding a token, batch 1, with the caches as decoding leaves them.
struct LayerTimes {
  double embedding = 0;                // one token
  double layer = 0;                    // one token, mean over the decoder's layers
  double head = 0;                     // final norm, head and argmax, until the token is on the host
  double early_head = 0;               // head of the exit and the k best tokens, until they are on the host
  std::map<int64_t, double> branches;  // by number 1..k: embedding and layers 0 .. d - d-bar - 1 as one pass
  double message = 0;                  // starting another process: half of a worker thread's round trip
  // Sending K/V of one position in the branches' layers and the hidden state to the other processes. Measured in the
  // device's memory, which is faster than any link between devices.
  double copy = 0;
  int64_t copy_bytes = 0;
};

// Returns the times after `context.prefix`, the parts measured in turns. Branches are measured for each number that a
// device gets when 1..k devices share k branches: ceil(k / m). Does not read ppd.execution.
LayerTimes measure_layer_times(model::TransformerModel& target, const model::Exits* exits,
                               const infer::PpdSettings& ppd, const infer::CalibrationContext& context,
                               int64_t repetitions = 15);

// Simulated speed of PPD by number of devices.
struct PpdSimulation {
  PpdSetting setting;  // its match rate counts all tokens but the last of a sequence (DecodeStats::match_rate)
  double tokens = 0;   // length of a sequence
  LayerTimes times;
  double plain = 0;                             // seconds per token of the target alone
  std::vector<double> latency;                  // [n-1] seconds per token on n devices, n = 1..k+1; never empty
  std::optional<int64_t> pays_from;             // fewest devices with a latency below `plain`; absent: none
  std::optional<double> break_even_match_rate;  // on k+1 devices; absent: a match rate of 1 is too low
  PpdCost theorem;                              // layer-units per token, theorem 4.1

  // Returns d over the theorem's latency.
  double theorem_speedup() const;
  // Returns `plain` over the latency on so many devices, 1..k+1.
  double speedup(int64_t devices) const;
};

// Returns the simulation for sequences of `tokens` >= 1, such as the mean length of outputs. One device runs the main
// process, and the n - 1 others share the branches, each in one pass. A single device runs the branches before the last
// layers.
PpdSimulation simulate_ppd(const LayerTimes& times, const PpdSetting& setting, double tokens);

}  // namespace draftsmith::evaluate
