// The suite that tuning writes: each run's grid is the setting that was chosen, and the validation task is left out.
#pragma once

#include <string>

#include "base/toml_names.h"
#include "evaluate/tuning/tuning.h"

namespace draftsmith::evaluate {

// Returns the TOML text of the tuned suite, made of the suite's own table. Lists of values become those of the chosen
// setting; a run that samples in several ways becomes a run for each. `head` is a comment at its top.
// Errors: std::logic_error if the text would not be a suite of the chosen settings.
std::string tuned_suite(const toml::table& suite, const TuningResult& result, const std::string& head);

}  // namespace draftsmith::evaluate
