// Keys of match rates in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, infer::MatchRate>& cell) {
  io("decoding", cell.decoding);
  io("layer", cell.layer);
  io("k", cell.k);
  std::string head = head_name(cell.trained);
  io("head", head);
  if constexpr (!Io::kWrites) cell.trained = head == head_name(true);
  io("positions", cell.positions);
  io("matches", cell.matches);
  io("tokens", cell.tokens);
  if (cell.tokens > 0) io.derived("rate", cell.rate());
}

template <class Io>
void visit(Io& io, Of<Io, MatchRateResult>& rates) {
  io("name", rates.name);
  io("task", rates.task);
  io("model", rates.model);
  io("prompts", rates.prompts);
  io("cells", rates.cells);
}

}  // namespace draftsmith::evaluate
