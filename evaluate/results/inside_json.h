// Keys of the work inside a setting's own model in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, PpdTheorem>& theorem) {
  io("latency_per_token", theorem.latency_per_token);
  io("compute_per_token", theorem.compute_per_token);
  io("units_in_use", theorem.units_in_use);
  io("speedup", theorem.speedup);
}

template <class Io>
void visit(Io& io, Of<Io, Inside>& inside) {
  io("layers", inside.layers);
  io("layer_runs_per_token", inside.layer_runs_per_token);
  io("path_per_token", inside.path_per_token);
  io("average_exit_layer", inside.average_exit_layer);
  io("exit_histogram", inside.exit_histogram);
  io("early_layer", inside.early_layer);
  io("candidates", inside.candidates);
  io("match_rate", inside.match_rate);
  io("early_predictions", inside.early_predictions);
  io("compute_per_token", inside.compute_per_token);
  io("units_in_use", inside.units_in_use);
  io("theorem", inside.theorem);
  io("exit_layer", inside.exit_layer);
}

}  // namespace draftsmith::evaluate
