// Texts on which drafters are measured teacher-forced: references, or the rest of cut prompts (Tandem paper, table 1).
#pragma once

#include <span>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {

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
