// The data of a suite's tasks: sources and references in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/suite/suite_options.h"
#include "metrics/text.h"

namespace draftsmith::evaluate {

struct TaskData {
  std::vector<std::string> sources;
  metrics::References
      references;  // as scored: for ROUGE, sentences are separated by newlines; empty for the metric "none"

  int64_t lines() const { return static_cast<int64_t>(sources.size()); }
};

// Reads the task's files, `limit` lines at most after `skip`.
// Errors: UserError for missing files, unequal line counts, missing fields, invalid UTF-8 and tasks without a line.
TaskData load_task(const TaskOptions& task);

// What line `line` (from 0) of the task is called in messages; `file` is where it was read.
std::string place_of(const TaskOptions& task, const std::filesystem::path& file, size_t line);

// The files that sources and first references are read from.
const std::filesystem::path& source_file(const TaskOptions& task);
const std::filesystem::path& reference_file(const TaskOptions& task);

}  // namespace draftsmith::evaluate
