// Details of a setting, which a page shows when its mark or name is chosen.
#pragma once

#include <nlohmann/json.hpp>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns the parameters and main numbers of each setting of a task, in plain words: an object with, for each setting,
// a list of pairs [name, value].
nlohmann::ordered_json setting_details(const TaskResult& task);

}  // namespace draftsmith::evaluate
