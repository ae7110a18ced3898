// Conversion of a suite's task lines to token ids of its target, and back.
#pragma once

#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "infer/load_models.h"

namespace draftsmith::evaluate {

// Returns the ids of a source line, like Engine::encode(), but does not check the room in the context.
Prompt encode_prompt(const infer::LoadedModel& target, const std::string& source, const TaskOptions& task, bool& cut);

// Returns the ids of the text that was cut off a decoder-only model's prompt, see Engine::encode_continuation().
std::vector<int64_t> encode_rest(const infer::LoadedModel& target, const std::string& source, const TaskOptions& task);

// Returns the ids of a reference, EOS included.
std::vector<int64_t> encode_output(const infer::LoadedModel& target, const std::string& reference,
                                   const TaskOptions& task);

// Returns the text of generated ids. With `ids` it is the ids themselves without EOS.
std::string output_text(const infer::LoadedModel& target, const std::vector<int64_t>& generated, bool ids);

}  // namespace draftsmith::evaluate
