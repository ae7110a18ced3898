// Notes on failed lines and on the checks of lossless settings, below the table of settings.
#pragma once

#include <string>

#include "evaluate/report/section.h"

namespace draftsmith::evaluate {

// Returns a note on lines that the setting could not decode; empty if there are none.
std::string failed_lines_note(const SettingResult& setting, Form form);

// Returns a note on lines that differ from greedy decoding; empty if none do. Brief reports note them of lossless
// settings only. Failed checks begin with "!".
std::string exactness_note(const SettingResult& setting, Form form);

// Returns a note on first tokens that lack the target's distribution; empty if they have it.
std::string first_tokens_note(const SettingResult& setting, Form form);

// Returns the verdict on all lossless settings of a task; empty if there are none.
std::string lossless_verdict(const TaskResult& task);

}  // namespace draftsmith::evaluate
