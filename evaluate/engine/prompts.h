// Lines of a suite's tasks as token ids of its target, and back.
#pragma once

#include <string>
#include <vector>

#include "evaluate/engine/engine.h"
#include "infer/load_models.h"

namespace draftsmith::evaluate {

// Source line -> ids, as Engine::encode() says but for the check of the context's room.
Prompt encode_prompt(const infer::LoadedModel& target, const std::string& source, const TaskOptions& task, bool& cut);

// The rest of a decoder-only model's text whose beginning is the prompt, see Engine::encode_continuation().
std::vector<int64_t> encode_rest(const infer::LoadedModel& target, const std::string& source, const TaskOptions& task);

// Reference -> ids, EOS included.
std::vector<int64_t> encode_output(const infer::LoadedModel& target, const std::string& reference,
                                   const TaskOptions& task);

// Text of generated ids; for `ids` the ids themselves without EOS.
std::string output_text(const infer::LoadedModel& target, const std::vector<int64_t>& generated, bool ids);

}  // namespace draftsmith::evaluate
