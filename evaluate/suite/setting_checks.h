// What can be wrong with one [[run]] of a suite, found before anything is loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Reports what is wrong with a [[run]] at `where`, before a recipe has trained for hours and comes to its evaluation.
// `settings` are the grid's (expand_grid), `drafters` the suite's.
void check_grid(const SettingGrid& grid, const std::vector<Setting>& settings,
                const std::vector<infer::DrafterOptions>& drafters, const std::string& where, Problems& problems);

// Returns the setting's drafter, one of the suite's `drafters` or the method's own; absent: none of that name.
std::optional<infer::DrafterSpec> drafter_spec(const Setting& setting,
                                               const std::vector<infer::DrafterOptions>& drafters);

}  // namespace draftsmith::evaluate
