// The three parts of a method that drafts.
#pragma once

#include <memory>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/drafters/drafter.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

struct DraftParts {
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<WindowRule> window;
  std::unique_ptr<AcceptanceRule> acceptance;
};

}  // namespace draftsmith::infer
