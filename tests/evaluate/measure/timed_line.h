// Records of lines with given tokens and times.
#pragma once

#include <vector>

#include "evaluate/measure/measurement_store.h"

namespace draftsmith::evaluate {

inline LineRecord timed(int64_t tokens, std::vector<double> verify, int64_t target_runs) {
  LineRecord record;
  record.ids.assign(static_cast<size_t>(tokens), 7);
  record.stats.emitted = tokens;
  record.stats.target_runs = target_runs;
  for (const double seconds : verify) {
    infer::PhaseSeconds phases;
    phases.encode = 1;
    phases.verify = seconds;
    record.repetitions.push_back(phases);
  }
  return record;
}

}  // namespace draftsmith::evaluate
