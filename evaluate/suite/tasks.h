// Tasks of a suite in memory: their metrics, sources and references, and texts for teacher-forced measurements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/suite/suite_options.h"
#include "metrics/metric.h"
#include "metrics/text.h"

namespace draftsmith::evaluate {

// Returns the task's metric. BLEU without a tokenizer takes that of the references' language, and 13a for ids.
std::unique_ptr<const metrics::Metric> task_metric(const TaskOptions& task);

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

// Returns the file of the sources.
const std::filesystem::path& source_file(const TaskOptions& task);

// ---- Texts on which drafters are measured teacher-forced (Tandem paper, table 1)

// Prompts with the outputs that are predicted after them.
struct ForcedTexts {
  std::vector<Prompt> prompts;
  std::vector<std::vector<int64_t>> outputs;  // one for each prompt, none empty
};

// Returns the texts of the task's first lines, whose prompts are given: the first reference of each line, or, without
// references, what max_source_tokens cut off. Skips lines without such a text; cuts outputs to `max_new_tokens`.
// If a reference cannot be an output (words in a task of ids), warns with file and line and returns nothing.
ForcedTexts forced_texts(const TaskOptions& task, const TaskData& data, std::span<const Prompt> prompts,
                         int64_t max_new_tokens, const Engine& engine);

}  // namespace draftsmith::evaluate
