// Data of a suite's tasks in memory: sources and references.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/suite/suite_options.h"
#include "metrics/text.h"

namespace draftsmith::evaluate {

// Sources and references of one task.
struct TaskData {
  std::vector<std::string> sources;  // of chat tasks: conversations as JSON, which the engine renders
  // In the form that is scored: newlines separate sentences for ROUGE. Empty for the metric "none".
  metrics::References references;
  // Sources as the files have them, without prefix and chat template; only where a metric's command may read them.
  std::vector<std::string> plain_sources = {};

  int64_t lines() const { return static_cast<int64_t>(sources.size()); }
};

// Reads the task's files: at most `limit` lines after the first `skip`.
// Errors: UserError for missing files, unequal line counts, missing fields, invalid UTF-8 and tasks without a line.
TaskData load_task(const TaskOptions& task);

// Returns the name of line `line` (from 0) of the task in messages about `file`.
std::string place_of(const TaskOptions& task, const std::filesystem::path& file, size_t line);

// Return the files of the sources and of the first references.
const std::filesystem::path& source_file(const TaskOptions& task);
const std::filesystem::path& reference_file(const TaskOptions& task);

}  // namespace draftsmith::evaluate
