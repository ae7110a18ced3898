// What models are given to predict, token by token, when it is measured how well they do (Tandem paper, table 1): the
// references of a task, or what follows in its texts on prompts that are their beginnings.
#pragma once

#include <span>
#include <vector>

#include "evaluate/engine/engine.h"
#include "evaluate/suite/tasks.h"

namespace draftsmith::evaluate {

struct ForcedTexts {
  std::vector<Prompt> prompts;
  std::vector<std::vector<int64_t>> outputs;  // one for each prompt, never empty
};

// Of the lines of `prompts`, which are the task's first: the first reference of each, or, in tasks without references,
// what max_source_tokens cut off; lines without are passed over. Outputs are cut to `max_new_tokens`.
// References that the models could not put out (words in a task of ids) are told in a warning with file and line, and
// nothing is returned.
ForcedTexts forced_texts(const TaskOptions& task, const TaskData& data, std::span<const Prompt> prompts,
                         int64_t max_new_tokens, const Engine& engine);

}  // namespace draftsmith::evaluate
