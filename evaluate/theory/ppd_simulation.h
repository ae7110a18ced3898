// What PPD's latency would be with a device for the main process and more for its branches, from times measured on this
// machine, where all of them share one: Theorem 4.1 (Yang et al. 2024) knows neither heads, nor wider passes, nor
// copies between processes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/inside/ppd.h"

namespace draftsmith::evaluate {

// Seconds of the parts of a token's way, batch 1: medians, with the caches as decoding leaves them.
struct LayerTimes {
  double embedding = 0;                // of one token
  double layer = 0;                    // a decoder layer of one token: the mean over all layers
  double head = 0;                     // final norm, head and argmax, until the token is on the host
  double early_head = 0;               // the exit's head and the k best, until they are on the host
  std::map<int64_t, double> branches;  // by their number 1..k: embedding and layers 0 .. d - d-bar - 1 as one pass
  double message = 0;  // telling another process what to begin with: half of a worker thread's round trip
  double copy = 0;     // what a process that was right sends the others: K/V of one position in those layers, and the
                       // hidden state; copied in the device's memory, so faster than any link between devices
  int64_t copy_bytes = 0;
};

// Measured after `context.prefix`, in turns as decoding runs them. Every number of branches that k branches on
// 1..k devices come down to is measured, ceil(k / m). ppd.execution is not read.
LayerTimes measure_layer_times(model::TransformerModel& target, const model::Exits* exits,
                               const infer::PpdSettings& ppd, const infer::CalibrationContext& context,
                               int64_t repetitions = 15);

struct PpdSimulation {
  PpdSetting setting;  // the match rate is of tokens that another follows (DecodeStats::match_rate)
  double tokens = 0;   // a sequence's length
  LayerTimes times;
  double plain = 0;                             // seconds a token, the target alone
  std::vector<double> latency;                  // [n-1] seconds a token on n devices, n = 1..k+1
  std::optional<int64_t> pays_from;             // devices from which it is below `plain`; absent: never
  std::optional<double> break_even_match_rate;  // on k+1 devices; absent: not even a match rate of 1 would do
  PpdCost theorem;                              // layer-units a token, Theorem 4.1

  // d over the theorem's latency.
  double theorem_speedup() const;
  // `plain` over the latency on n devices, 1..k+1.
  double speedup(int64_t devices) const;
};

// One device runs the main process, the n - 1 others share the branches, as one pass each; of one device alone the
// branches come before the last layers. `tokens` >= 1, e.g. the mean length of outputs.
PpdSimulation simulate_ppd(const LayerTimes& times, const PpdSetting& setting, double tokens);

}  // namespace draftsmith::evaluate
