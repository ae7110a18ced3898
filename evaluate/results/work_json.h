// Keys of a setting's operations and bytes in results.json; a part of results_json.cpp.
#pragma once

#include "evaluate/results/json_io.h"
#include "evaluate/results/work_result.h"

namespace draftsmith::evaluate {

template <class Io>
void visit(Io& io, Of<Io, WorkResult>& work) {
  io("operations_per_token", work.operations);
  io("bytes_per_token", work.bytes);
  io.derived("intensity", work.intensity());
  io("input_operations_per_token", work.input_operations);
  io("input_bytes_per_token", work.input_bytes);
  io("draft_operations_per_token", work.draft_operations);
  io("draft_bytes_per_token", work.draft_bytes);
  io("operations_ratio", work.operations_ratio);
  io("bytes_ratio", work.bytes_ratio);
  io("intensity_ratio", work.intensity_ratio);
  io("decode_operations_ratio", work.decode_operations_ratio);
  io("theory_operations_ratio", work.theory_operations_ratio);
  io("drafter_operations_ratio", work.drafter_operations_ratio);
}

}  // namespace draftsmith::evaluate
