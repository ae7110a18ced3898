// Circumstances of an evaluation, none of which changes its results.
#pragma once

#include <cstdint>

#include "distributed/world.h"

namespace draftsmith::evaluate {

struct SuiteContext {
  bool quiet = false;  // shows neither progress nor table
  // Processes that evaluate together. They share the output directory and deal out all that is not timed; the leader
  // times alone, with SuiteOptions::threads.
  World* world = &World::alone();
  int64_t shared_threads = 0;  // of each process in work that is dealt out; 0: SuiteOptions::threads
};

}  // namespace draftsmith::evaluate
