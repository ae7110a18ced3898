// Sentences that say what a suite found, one a task: console, pages and Markdown begin or end with it.
#pragma once

#include <string>
#include <vector>

#include "evaluate/results/results.h"

namespace draftsmith::evaluate {

// Settings that the headline of a task names; nullptr: there is none.
struct Best {
  const SettingResult* lossless = nullptr;  // the fastest whose checks of losslessness passed
  const SettingResult* near = nullptr;      // the fastest that loses at most one point, and is faster than `lossless`
  const SettingResult* next = nullptr;      // without `near`: the one faster than `lossless` that loses least
  bool lossy = false;                       // there are settings that may lose quality
};

// Returns the best settings among those that are compared with the task's own baseline. Settings with failed lines or
// wrong measurements, repeated baselines and settings without a speedup do not count.
Best best_settings(const TaskResult& task);

// Returns the sentence: "Lossless methods are up to 2.41 × as fast at the same BLEU (...); the best within one point of
// BLEU is 2.93 × as fast (...)." Without such a setting it names Best::next, or says that nothing is faster.
// Empty if no setting can be compared.
std::string headline(const TaskResult& task);

// Returns the headlines of all tasks but those on which settings are chosen, with the tasks' names if there are
// several.
std::vector<std::string> headlines(const Results& results);

}  // namespace draftsmith::evaluate
