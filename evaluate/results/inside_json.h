// Keys of the work inside a setting's own model in results.json, PPD's simulation among it; a part of results_json.cpp.
#pragma once

#include <map>

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

// Writes and reads numbers as keys, which are strings in JSON.
inline void visit(JsonWriter& io, const std::map<int64_t, double>& seconds) {
  for (const auto& [branches, value] : seconds) io(std::to_string(branches), value);
}
inline void visit(JsonReader& io, std::map<int64_t, double>& seconds) {
  for (const auto& [branches, value] : io.json.items()) seconds[key_number(branches)] = value.template get<double>();
}

template <class Io>
void visit(Io& io, Of<Io, LayerTimes>& times) {
  io("embedding", times.embedding);
  io("layer", times.layer);
  io("head", times.head);
  io("early_head", times.early_head);
  io("branches", times.branches);
  io("message", times.message);
  io("copy", times.copy);
}

template <class Io>
void visit(Io& io, Of<Io, PpdCost>& theorem) {
  io("latency_units", theorem.latency);
  io("compute_units", theorem.compute);
  io.derived("units_in_use", theorem.units_in_use());
}

template <class Io>
void visit(Io& io, Of<Io, PpdSimulation>& simulation) {
  io("layers", simulation.setting.layers);
  io("early_layer", simulation.setting.early_layer);
  io("candidates", simulation.setting.candidates);
  io("match_rate", simulation.setting.match_rate);
  io("tokens", simulation.tokens);
  io("seconds", simulation.times);
  io("copy_bytes", simulation.times.copy_bytes);
  io("plain", simulation.plain);
  io("latency_by_devices", simulation.latency);
  if (!Io::kWrites && simulation.latency.empty()) throw InvalidValue("'latency_by_devices' of a simulation is empty");
  std::vector<double> speedups;
  for (size_t n = 1; n <= simulation.latency.size(); ++n)
    speedups.push_back(simulation.speedup(static_cast<int64_t>(n)));
  io.derived("speedup_by_devices", speedups);
  io.or_null("pays_from_devices", simulation.pays_from);
  io.or_null("break_even_match_rate", simulation.break_even_match_rate);
  io("theorem", simulation.theorem);
  if constexpr (Io::kWrites) io.json["theorem"]["speedup"] = simulation.theorem_speedup();
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
  io("simulation", inside.simulation);
}

}  // namespace draftsmith::evaluate
