// Reporting of an evaluation while it runs.
#pragma once

#include <string>

namespace draftsmith::evaluate {

struct SuiteContext {
  bool quiet = false;  // shows neither progress nor table
};

}  // namespace draftsmith::evaluate
