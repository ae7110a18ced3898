// Checks of one [[run]] of a suite, made before anything is loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Adds the problems of a [[run]] at `where`, so that a recipe does not find them after hours of training. `settings`
// are the grid's (expand_grid()), `drafters` the suite's.
void check_grid(const SettingGrid& grid, const std::vector<Setting>& settings,
                const std::vector<infer::DrafterOptions>& drafters, const std::string& where, Problems& problems);

// Returns the setting's drafter, one of the suite's `drafters` or the method's own; nothing for an unknown name.
std::optional<infer::DrafterSpec> drafter_spec(const Setting& setting,
                                               const std::vector<infer::DrafterOptions>& drafters);

}  // namespace draftsmith::evaluate
