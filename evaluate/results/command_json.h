// Keys of a task's own measure in results.json; a part of results_json.cpp. Files come from anywhere: a reader refuses
// what no suite can have given. Reading runs nothing.
#pragma once

#include <cmath>

#include "evaluate/results/json_io.h"
#include "metrics/command.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, metrics::CommandOptions>& command) {
  io("command", command.command);
  io("label", command.label);
  io("input", command.input);
  io("point", command.point);
  io("lower_is_better", command.lower_is_better);
  if constexpr (!Io::kWrites) {
    if (!metrics::defect_of_label(command.label).empty()) throw InvalidValue("'label' of a command is no score's name");
    if (!std::isfinite(command.point) || command.point <= 0) throw InvalidValue("'point' of a command is not positive");
  }
}

}  // namespace draftsmith::evaluate
