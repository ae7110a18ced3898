// Names of settings that fit beside marks, and choices of the settings that a plot has room for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Returns a short name for each setting of a task, the baseline included, by its name: method and drafter, and of the
// parameters one that no other setting of the same method and drafter has, or all in which they differ ("bild · aligned
// · FB0.5"). No two settings have the same.
std::map<std::string, std::string> short_names(const TaskResult& task);

// Returns the settings that `shown` holds for, at most `limit` and then the fastest, in the order of the task.
std::vector<const SettingResult*> fastest_settings(const TaskResult& task, size_t limit,
                                                   const std::function<bool(const SettingResult&)>& shown);

// Returns the words for a caption if settings were left out: " Shown: the 24 fastest of 500."; else nothing.
std::string left_out_words(const TaskResult& task, size_t limit,
                           const std::function<bool(const SettingResult&)>& shown);

}  // namespace draftsmith::evaluate
