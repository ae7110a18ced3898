// How an evaluation reports while it runs.
#pragma once

#include <string>

namespace draftsmith::evaluate {

struct SuiteContext {
  bool quiet = false;  // no progress, no table
};

}  // namespace draftsmith::evaluate
